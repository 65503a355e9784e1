package checker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

const (
	healthy   = corev3.HealthStatus_HEALTHY
	unhealthy = corev3.HealthStatus_UNHEALTHY
	timeout   = corev3.HealthStatus_TIMEOUT
)

// listen serves TCP connections with a function until the test ends.
func listen(t *testing.T, network, address string, serve func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			running.Go(func() {
				defer conn.Close() //nolint:errcheck // the test is over, or the peer has gone
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// hang accepts and never answers.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// pong answers PING with PONG, in pieces and among other bytes.
func pong(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if line != "PING\n" {
			return
		}
		if _, err := fmt.Fprint(conn, "xxPO--NGxx"); err != nil {
			return
		}
	}
}

func overTCP(send string, receive ...string) *corev3.HealthCheck {
	m := &corev3.HealthCheck_TcpHealthCheck{}
	payload := func(s string) *corev3.HealthCheck_Payload {
		return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Binary{Binary: []byte(s)}}
	}
	if send != "" {
		m.Send = payload(send)
	}
	for _, r := range receive {
		m.Receive = append(m.Receive, payload(r))
	}
	return check(func(hc *corev3.HealthCheck) {
		hc.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: m}
		hc.Timeout = durationpb.New(200 * time.Millisecond)
	})
}

func TestTCP(t *testing.T) {
	answers := listen(t, "tcp", "127.0.0.1:0", pong)
	hangs := listen(t, "tcp", "127.0.0.1:0", hang)
	pipe := listen(t, "unix", filepath.Join(t.TempDir(), "s"), pong)
	closes := listen(t, "tcp", "127.0.0.1:0", func(net.Conn) {})
	none := testhelp.Refused(t)
	s := start(t).stream()
	s.specify(t, spec(
		cluster("connect", overTCP(""), answers, hangs, none),
		cluster("exchange", overTCP("PING\n", "PO", "NG"), answers, hangs, none, pipe, closes),
		cluster("wrong", overTCP("PING\n", "NG", "PO"), answers),
	))
	for _, want := range []struct {
		cluster, address string
		status           corev3.HealthStatus
	}{
		{"connect", answers, healthy}, {"connect", hangs, healthy}, {"connect", none, unhealthy},
		{"exchange", answers, healthy}, {"exchange", pipe, healthy}, {"exchange", hangs, timeout},
		{"exchange", none, unhealthy}, {"exchange", closes, unhealthy}, {"wrong", answers, timeout},
	} {
		s.until(t, want.cluster, want.address, want.status)
	}
}

// TestGreeting: a server that speaks first, and once, is healthy at every probe.
func TestGreeting(t *testing.T) {
	greets := listen(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		_, _ = io.WriteString(conn, "220 ready\r\n")
		hang(conn)
	})
	registry := prometheus.NewRegistry()
	s := start(t, func(o *checker.Options) { o.Registerer = registry }).stream()
	s.specify(t, spec(cluster("mail", overTCP("", "220 "), greets)))
	s.until(t, "mail", greets, healthy)
	for testhelp.Metric(t, registry, "isobar_checker_probes_total") < 10 {
		s.next(t)
	}
	wantAllPassed(t, registry)
}

// wantAllPassed reads the counters once: probes go on.
func wantAllPassed(t *testing.T, from prometheus.Gatherer) {
	t.Helper()
	for labels, probes := range testhelp.Series(t, from, "isobar_checker_probes_total") {
		if probes > 0 && !slices.Contains(strings.Split(labels, ","), "passed") {
			t.Errorf("%v probes ended with %s, want all passed", probes, labels)
		}
	}
}

func overGRPC(service string) *corev3.HealthCheck {
	return check(func(hc *corev3.HealthCheck) {
		hc.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: service}}
	})
}

func TestGRPC(t *testing.T) {
	state := health.NewServer()
	state.SetServingStatus("shop", healthpb.HealthCheckResponse_NOT_SERVING)
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, state)
	hangs, none, address := listen(t, "tcp", "127.0.0.1:0", hang), testhelp.Refused(t), testhelp.Loopback(t, srv)

	s := start(t).stream()
	s.specify(t, spec(
		cluster("whole", overGRPC(""), address, hangs, none),
		cluster("shop", overGRPC("shop"), address),
		cluster("nobody", overGRPC("nobody"), address),
	))
	s.until(t, "whole", address, healthy)
	s.until(t, "whole", hangs, timeout)
	s.until(t, "whole", none, unhealthy)
	s.until(t, "shop", address, unhealthy)
	s.until(t, "nobody", address, unhealthy)
	state.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)
	s.until(t, "shop", address, healthy)
	srv.Stop()
	s.until(t, "whole", address, unhealthy)
}

// TestOverrides probes elsewhere than traffic goes, and reports on the
// endpoint's own address.
func TestOverrides(t *testing.T) {
	srv := newWeb(t, false, http1Only)
	port := uint32(srv.Listener.Addr().(*net.TCPAddr).Port)
	c := cluster("shop", overHTTP(), "127.0.0.1:1", "192.0.2.1:1", "127.0.0.1:2")
	c.LocalityEndpoints[0].Endpoints[0].HealthCheckConfig = healthCheckConfig("", port, "")
	c.LocalityEndpoints[0].Endpoints[1].HealthCheckConfig = healthCheckConfig("", 0, srv.address())
	c.LocalityEndpoints[0].Endpoints[2].HealthCheckConfig = disabled()
	s := start(t).stream()
	s.specify(t, spec(c))
	s.until(t, "shop", "127.0.0.1:1", healthy)
	s.until(t, "shop", "192.0.2.1:1", healthy)
	if _, ok := statusIn(s.next(t), "shop", "127.0.0.1:2"); ok {
		t.Error("an endpoint with disable_active_health_check is reported")
	}
}
