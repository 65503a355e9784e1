// Command client is a small gRPC client to try Isobar with: it sends requests
// to a service at a fixed rate through gRPC's own xDS client, and prints once
// a second which backends answered. GRPC_XDS_BOOTSTRAP names its bootstrap file
// (see `isobar bootstrap grpc`); examples/backend answers it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	_ "google.golang.org/grpc/xds" // registers the xds scheme
)

// timeout bounds one request.
const timeout = 2 * time.Second

// tally counts answers by backend.
type tally struct {
	mu      sync.Mutex
	answers map[string]int
	failed  int
	last    error
}

func (t *tally) add(backend string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed++
		t.last = err
		return
	}
	t.answers[backend]++
}

// line tells what came since the last line.
func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := make([]string, 0, len(t.answers)+1)
	for _, backend := range slices.Sorted(maps.Keys(t.answers)) {
		parts = append(parts, fmt.Sprintf("%s %d", backend, t.answers[backend]))
	}
	if t.failed > 0 {
		parts = append(parts, fmt.Sprintf("failed %d (%v)", t.failed, t.last))
	}
	clear(t.answers)
	t.failed = 0
	return strings.Join(parts, "   ")
}

func main() {
	service := flag.String("service", "checkout", "service to call")
	rate := flag.Int("rate", 50, "requests per second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *service, *rate); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signal handler with it
	}
}

func run(ctx context.Context, out io.Writer, service string, rate int) error {
	if rate < 1 {
		return errors.New("-rate must be at least 1")
	}
	if os.Getenv("GRPC_XDS_BOOTSTRAP") == "" && os.Getenv("GRPC_XDS_BOOTSTRAP_CONFIG") == "" {
		return errors.New("GRPC_XDS_BOOTSTRAP names no bootstrap file: write one with " +
			"`isobar bootstrap grpc --locality us-east/b > bootstrap.json`, and set the variable to its path")
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the process ends
	client := healthv1.NewHealthClient(conn)
	t := &tally{answers: map[string]int{}}
	send := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(rate)))
	defer send.Stop()
	began, sent := time.Now(), 0
	show := time.NewTicker(time.Second)
	defer show.Stop()
	var requests sync.WaitGroup
	defer requests.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-send.C:
			// A busy machine leaves ticks out: what is due by now is sent.
			for due := int(time.Since(began).Seconds() * float64(rate)); sent < due; sent++ {
				requests.Go(func() { request(ctx, client, t) })
			}
		case <-show.C:
			if _, err := fmt.Fprintln(out, t.line()); err != nil {
				return err
			}
		}
	}
}

func request(ctx context.Context, client healthv1.HealthClient, t *tally) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var from peer.Peer
	_, err := client.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&from))
	if errors.Is(ctx.Err(), context.Canceled) { // told to stop
		return
	}
	backend := "?"
	if from.Addr != nil {
		backend = from.Addr.String()
	}
	t.add(backend, err)
}
