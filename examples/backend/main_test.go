package main

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// TestBackends: each address is told once it is served, and all end together.
func TestBackends(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, w, []string{"127.0.0.1:0", "127.0.0.1:0"}, time.Millisecond, 2)
		_ = w.Close()
	}()
	told := regexp.MustCompile(`^listening on (127\.0\.0\.1:\d+): 2 requests at once, 1ms each`)
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() {
			t.Fatal("no line")
		}
		m := told.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("%q", lines.Text())
		}
		conn, err := grpc.NewClient(m[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestBackendsThatCantListen: the first address that is taken ends all.
func TestBackendsThatCantListen(t *testing.T) {
	if err := run(t.Context(), io.Discard, []string{"127.0.0.1:0", "127.0.0.1:99999"}, 0, 1); err == nil {
		t.Error("no error")
	}
	if err := run(t.Context(), io.Discard, []string{"127.0.0.1:0"}, 0, 0); err == nil {
		t.Error("no concurrency, and no error")
	}
}
