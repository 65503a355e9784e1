package main

import (
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
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
		File: file, Data: data, Log: log, Version: buildVersion(), NoConsole: !page, Pressure: newMemoryLimit(pressedMemory).press,
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

// While clients press on memory the process is to stay within pressedMemory: the budget for
// messages of clients, and a little more. What is in use is collected more often for that,
// but it gets room for at least one byte of garbage for leastGarbage bytes, so that the
// garbage collector always leaves most of the processor time to others.
const (
	pressedMemory = 544 << 20
	leastGarbage  = 8

	heapParts, ofHeapParts = 97, 100 // of what the limit leaves to objects, Go uses these
	spareMemory            = 4 << 20 // what is no object grows, too
)

// memoryLimit changes the limit of memory from which on Go collects garbage more often.
type memoryLimit struct {
	pressed int64 // bytes, while clients press on memory
	usual   int64 // of all other times: what GOMEMLIMIT says
	samples []metrics.Sample
	live    liveHeap
	on      bool // clients pressed last time
}

func newMemoryLimit(pressed int64) *memoryLimit {
	return &memoryLimit{
		pressed: pressed, usual: debug.SetMemoryLimit(-1),
		samples: []metrics.Sample{
			{Name: "/memory/classes/total:bytes"},
			{Name: "/memory/classes/heap/released:bytes"},
			{Name: "/memory/classes/heap/free:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/gc/heap/live:bytes"},
			{Name: "/gc/cycles/total:gc-cycles"},
		},
	}
}

// press sets the limit; on reports whether clients press on memory. While they do, it is
// called again, since what is in use changes. What they took is given back when they no longer
// do: the heap could grow to twice of what was in use before Go collects it without the limit.
func (l *memoryLimit) press(on bool) {
	limit := l.usual
	if on {
		limit = min(limit, max(l.pressed, l.least()))
	}
	if limit != debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
	if l.on && !on {
		debug.FreeOSMemory()
	}
	l.on = on
}

// least is what the process needs so that the collector does not run all the time. Of the
// limit Go first takes what is no object: stacks, its own data, and the gaps between objects,
// which may be larger than these where most of them were freed. Of the rest it leaves some
// hundredths alone, or a mebibyte. What the process has above the limit Go takes off once
// more, free memory that was not given back among it: with half of that the two come to the
// same, and Go still gives it back.
func (l *memoryLimit) least() int64 {
	metrics.Read(l.samples)
	var n [6]int64
	for i, s := range l.samples {
		n[i] = int64(min(s.Value.Uint64(), math.MaxInt64/4))
	}
	free, live := n[2], l.live.after(n[5], n[4])
	other := n[0] - n[1] - free - n[3]
	return max(0, other) + free/2 + spareMemory + live/leastGarbage*(leastGarbage+1)/heapParts*ofHeapParts
}

// liveHeap shows how much of the heap is in use from what the last collections found. One
// alone finds too much: what comes while it runs counts as in use, and on a busy machine
// that is a quarter of the heap. The smaller of two is right, or one collection late.
type liveHeap struct{ cycle, last, before int64 }

// after returns what is in use after a collection, which is seen again and again, has found so much.
func (l *liveHeap) after(cycle, found int64) int64 {
	if cycle != l.cycle {
		l.before = l.last
		if l.cycle == 0 {
			l.before = found
		}
	}
	l.cycle, l.last = cycle, found
	return min(l.before, l.last)
}
