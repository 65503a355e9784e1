// Command backend is a small gRPC server to try Isobar with: it answers the
// standard health check after a fixed service time, on a fixed number of
// requests at once. What comes on top waits, as in a real server.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
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
	listen := flag.String("listen", "127.0.0.1:50051", "address to listen on")
	service := flag.Duration("service-time", 40*time.Millisecond, "time that one request takes")
	concurrency := flag.Int("concurrency", 4, "requests worked on at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *service, *concurrency); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signal handler with it
	}
}

func run(ctx context.Context, listen string, service time.Duration, concurrency int) error {
	if concurrency < 1 || service < 0 {
		return fmt.Errorf("-concurrency must be at least 1 and -service-time not negative")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	srv := grpc.NewServer()
	healthv1.RegisterHealthServer(srv, &backend{service: service, slots: make(chan struct{}, concurrency)})
	context.AfterFunc(ctx, srv.Stop)
	return srv.Serve(l)
}
