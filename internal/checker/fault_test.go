package checker_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestOwnFault: a checker that can't open connections says nothing, whatever
// the protocol, rather than that its endpoints are down.
func TestOwnFault(t *testing.T) {
	var broken atomic.Bool
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if broken.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	srv := newWeb(t, false, http1Only)
	s := start(t, func(o *checker.Options) { o.Dial = dial }).stream()
	always := patiently(overHTTP())
	always.ReuseConnection = no()
	s.specify(t, spec(cluster("http", always, srv.address())))
	s.until(t, "http", srv.address(), healthy)
	broken.Store(true)
	sp := spec(cluster("http", always, srv.address()))
	for name, hc := range map[string]*corev3.HealthCheck{
		"tcp": check(nil), "grpc": overGRPC(""), "redis": overRedis(t, ""), "tls": overHTTP(),
	} {
		c := cluster(name, hc, srv.address())
		if name == "tls" {
			c.TransportSocketMatches = anyTLS(t, nil)
		}
		sp.ClusterHealthChecks = append(sp.ClusterHealthChecks, c)
	}
	s.specify(t, sp)
	for began := time.Now(); ; {
		r := s.next(t)
		if status, ok := statusIn(r, "http", srv.address()); ok && status != healthy {
			t.Fatalf("an endpoint was called %s for want of open files here", status)
		}
		if c := r.GetEndpointHealthResponse().GetClusterEndpointsHealth(); len(c) == 5 && !slices.ContainsFunc(c, func(c *clusterEndpointsHealth) bool { return len(c.GetLocalityEndpointsHealth()) > 0 }) {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("still reported: %v", r)
		}
	}
	edited := patiently(overHTTP())
	edited.ReuseConnection, edited.UnhealthyThreshold = no(), wrapperspb.UInt32(2)
	s.specify(t, spec(cluster("http", edited, srv.address())))
	for range 5 { // no more is known under another check
		if status, ok := statusIn(s.next(t), "http", srv.address()); ok && status != healthy {
			t.Fatalf("an endpoint was called %s for want of open files here, when its check was edited", status)
		}
	}
	broken.Store(false)
	s.until(t, "http", srv.address(), healthy)
}

// TestIdleClose: servers that close connections between probes are healthy all
// the time.
func TestIdleClose(t *testing.T) {
	registry := prometheus.NewRegistry()
	var conns atomic.Int32
	web := func(protocols func(*http.Protocols)) string {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { conns.Add(1) }))
		srv.Config.IdleTimeout = 5 * time.Millisecond
		srv.Config.Protocols = new(http.Protocols)
		protocols(srv.Config.Protocols)
		srv.Start()
		t.Cleanup(srv.Close)
		return srv.Listener.Addr().String()
	}
	one, two := web(http1Only), web(http2Clear)
	once := listen(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		b := make([]byte, 5)
		if _, err := io.ReadFull(conn, b); err == nil {
			_, _ = io.WriteString(conn, "PONG")
		}
	})
	s := start(t, func(o *checker.Options) { o.Registerer = registry }).stream()
	s.specify(t, spec(cluster("http", patiently(overHTTP()), one), cluster("h2c", patiently(overHTTP(http2)), two), cluster("tcp", patiently(overTCP("PING\n", "PONG")), once)))
	s.until(t, "http", one, healthy)
	s.until(t, "h2c", two, healthy)
	s.until(t, "tcp", once, healthy)
	before := conns.Load()
	for conns.Load() < before+20 {
		s.next(t)
	}
	if all, passed := testhelp.Metric(t, registry, "isobar_checker_probes_total"), testhelp.Metric(t, registry, "isobar_checker_probes_total", "passed"); all != passed {
		t.Errorf("%v of %v probes passed", passed, all)
	}
}

// TestSlow: a server that takes its time, but less than the timeout, is
// healthy; one that takes longer is not.
func TestSlow(t *testing.T) {
	var takes atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the status alone is no answer
		select {
		case <-time.After(time.Duration(takes.Load())):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	address := srv.Listener.Addr().String()
	takes.Store(int64(100 * time.Millisecond))
	s := start(t).stream()
	s.specify(t, spec(cluster("slow", overHTTP(), address)))
	s.until(t, "slow", address, healthy)
	takes.Store(int64(time.Minute))
	s.until(t, "slow", address, timeout)
}
