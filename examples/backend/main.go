// Command backend is a small gRPC server to try Isobar with: it answers the
// standard health check after a fixed service time, on a fixed number of
// requests at once. What comes on top waits, as in a real server. With several
// addresses it stands for as many servers, each with its own limit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

type backend struct {
	healthv1.UnimplementedHealthServer

	service time.Duration
	slots   chan struct{}
}

// Check waits for a free slot, then works.
func (b *backend) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-b.slots }()
	select {
	case <-time.After(b.service):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:50051", "addresses to listen on, with commas between them")
	service := flag.Duration("service-time", 40*time.Millisecond, "time that one request takes")
	concurrency := flag.Int("concurrency", 4, "requests worked on at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, strings.Split(*listen, ","), *service, *concurrency); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signal handler with it
	}
}

func run(ctx context.Context, out io.Writer, addresses []string, service time.Duration, concurrency int) error {
	if concurrency < 1 || service < 0 {
		return errors.New("-concurrency must be at least 1 and -service-time not negative")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, len(addresses))
	for _, address := range addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		srv := grpc.NewServer()
		healthv1.RegisterHealthServer(srv, &backend{service: service, slots: make(chan struct{}, concurrency)})
		context.AfterFunc(ctx, srv.Stop)
		go func() { served <- srv.Serve(l) }()
		if _, err := fmt.Fprintf(out, "listening on %s: %d requests at once, %v each; Ctrl-C stops\n", l.Addr(), concurrency, service); err != nil {
			return err
		}
	}
	var errs []error
	for range addresses {
		errs = append(errs, <-served)
		stop() // one that ends takes the others with it
	}
	return errors.Join(errs...)
}
