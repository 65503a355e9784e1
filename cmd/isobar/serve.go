package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/server"
)

func serveCommand() *cobra.Command {
	file, page := defaultConfig, true
	cmd := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Run the management server",
		Long: `Run the management server until it is interrupted. The server watches the
configuration file: it applies a valid change. If a change is invalid, it reports
the position of every error and keeps the previous configuration. The server
saves the last plan and the services of the API in state_dir, and serves them
again after a restart. On SIGHUP the server reads its files at once; use it if the
file system does not report changes.

The web console is at /ui/ of the admin interface; --console=false, or
admin: {console: false} in the file, turns it off.`,
		Example: "  isobar serve -c isobar.yaml\n  isobar serve -c isobar.yaml --console=false",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), file, page, cmd.ErrOrStderr())
		},
	}
	registerConfig(cmd, &file, "configuration file")
	cmd.Flags().BoolVar(&page, "console", page, "serve the web console, unless the file turns it off")
	return cmd
}

func serve(ctx context.Context, file string, page bool, stderr io.Writer) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before anything that takes time: it would end the process
	defer signal.Stop(hangups)
	s, cfg, log, err := openServer(ctx, file, page, stderr)
	if err != nil {
		return err
	}
	stop := onEach(hangups, func() {
		log.Info("received SIGHUP; reloading files")
		s.Reread()
	})
	defer stop()
	log.Info("serving", "xds", s.XDSAddress(), "admin", s.AdminAddress(), "console", cfg.Admin.Console && page,
		"services", services(cfg), "state_dir", cfg.StateDir)
	if err := s.Run(ctx); err != nil {
		log.Error("stopped with an error", "error", err)
		return err
	}
	log.Info("stopped")
	return nil
}

// openServer makes the server that a file describes.
func openServer(ctx context.Context, file string, page bool, stderr io.Writer) (*server.Server, *config.Config, *slog.Logger, error) {
	data, err := readConfigFile(file, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	defer reload.Frugally(len(data))()
	cfg, warnings, err := config.Decode(file, data)
	printWarnings(stderr, warnings)
	if err != nil {
		return nil, nil, nil, err
	}
	log := newLogger(cfg.Log, stderr)
	s, err := server.Open(ctx, cfg, server.Options{
		File: file, Data: data, Log: log, Version: buildVersion(), NoConsole: !page,
		Pressure: newMemoryLimit(pressedMemory).press, Published: newIdleCollector().published,
	})
	return s, cfg, log, err
}

// onEach calls f at each signal, until stop is called.
func onEach(signals <-chan os.Signal, f func()) (stop func()) {
	stopped := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-signals:
				f()
			case <-stopped:
				return
			}
		}
	})
	return func() {
		close(stopped)
		waiting.Wait()
	}
}

// services counts those that the file names: its own, and those that another control
// plane, DNS or a Kubernetes cluster lists.
func services(c *config.Config) int {
	n := len(c.Services)
	if c.Discovery.XDS != nil {
		n += len(c.Discovery.XDS.Services)
	}
	if c.Discovery.DNS != nil {
		n += len(c.Discovery.DNS.Services)
	}
	if c.Discovery.Kubernetes != nil {
		n += len(c.Discovery.Kubernetes.Services)
	}
	return n
}

func newLogger(l config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.Level}
	if l.JSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
