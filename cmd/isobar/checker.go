package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/identity"
)

// checkerFlags are the flags of `isobar checker`.
type checkerFlags struct {
	server   string
	locality string
	nodeID   string
	cluster  string

	maxProbes    int
	maxEndpoints int
	metrics      string

	insecure bool
	tls      identity.DialFiles
}

func checkerCommand() *cobra.Command {
	var flags checkerFlags
	cmd := &cobra.Command{
		Use:   "checker",
		Short: "Run a health checker: probe the endpoints that the server designates and report on them",
		Long: `Run a health checker until it is interrupted. It connects to a management
server over HDS, probes the endpoints that the server designates over HTTP, TCP,
gRPC or Redis, as Envoy does, and reports the results. It continues to probe while
the server can't be reached. Run at least 3, in at least 2 zones.`,
		Example: "  isobar checker --server 127.0.0.1:18000 --locality us-east/b\n" +
			"  isobar checker --server isobar.example:18000 --ca ca.pem --locality us-east/b --metrics-listen 127.0.0.1:9100",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return runChecker(cmd.Context(), &flags, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.server, "server", "127.0.0.1:18000", "the server's xDS address, HOST:PORT")
	f.StringVar(&flags.locality, "locality", "", "where the checker runs: region/zone or region/zone/sub_zone")
	f.StringVar(&flags.nodeID, "node-id", "", "unique name of this checker (default: the host's name)")
	f.StringVar(&flags.cluster, "cluster", "checker", "node.cluster of this checker")
	f.IntVar(&flags.maxProbes, "max-probes", checker.DefaultMaxProbes, "probes at once")
	f.IntVar(&flags.maxEndpoints, "max-endpoints", checker.DefaultMaxEndpoints, "highest number of endpoints; the checker ignores further designated endpoints")
	f.StringVar(&flags.metrics, "metrics-listen", "", "address for /metrics and /healthz, for example 127.0.0.1:9100; empty = none")
	f.StringVar(&flags.tls.CA, "ca", "", "authorities (PEM) that sign the server's certificate; with it the connection uses TLS")
	f.StringVar(&flags.tls.Cert, "cert", "", "this checker's certificate (PEM), shown to the server")
	f.StringVar(&flags.tls.Key, "key", "", "the key of --cert (PEM)")
	f.BoolVar(&flags.insecure, "insecure", false, "connect without TLS to a server that is not on this machine")
	_ = cmd.MarkFlagRequired("locality") // fails only for a flag that is not there
	return cmd
}

func runChecker(ctx context.Context, flags *checkerFlags, log *slog.Logger) error {
	where, err := checkerLocality(flags.locality)
	if err != nil {
		return err
	}
	if flags.nodeID == "" {
		if flags.nodeID, err = os.Hostname(); err != nil {
			return fmt.Errorf("--node-id: not given, and the host has no name: %w", err)
		}
	}
	creds, err := dialCredentials("--server", flags.server, flags.tls, flags.insecure, log)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("dns:///"+flags.server,
		grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		// The checker waits between attempts itself; gRPC's own back-off, of up
		// to two minutes, would come on top.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c, err := checker.New(checker.Options{
		Conn: conn, ID: flags.nodeID, Cluster: flags.cluster, Locality: where, Version: buildVersion(),
		MaxProbes: flags.maxProbes, MaxEndpoints: flags.maxEndpoints, Hint: flags.tls.Hint, Log: log, Registerer: registry,
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	stop, err := serveCheckerMetrics(ctx, flags.metrics, registry, log)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	log.Info("checking", "server", flags.server, "node_id", flags.nodeID, "locality", where.String())
	c.Run(ctx)
	log.Info("stopped")
	return errors.Join(stop(), conn.Close())
}

func checkerLocality(text string) (isobar.Locality, error) {
	where, err := isobar.ParseLocality(text)
	switch {
	case err != nil:
		return where, usagef("--locality: %w", err)
	case where.Zone == "":
		return where, usagef("--locality %q: want REGION/ZONE: checkers are spread over zones", text)
	}
	return where, nil
}

// serveCheckerMetrics serves /metrics and /healthz until stop is called.
func serveCheckerMetrics(ctx context.Context, address string, g prometheus.Gatherer, log *slog.Logger) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok") // the asker has gone
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	log.Info("serving metrics", "address", l.Addr().String())
	return func() error {
		err := srv.Close()
		if s := <-served; !errors.Is(s, http.ErrServerClosed) {
			return s
		}
		return err
	}, nil
}
