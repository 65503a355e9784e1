package checker_test

import (
	"bufio"
	"context"
	"errors"
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
	xhttp2 "golang.org/x/net/http2"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/checker"
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
	var served atomic.Int32
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	web.Config.IdleTimeout = 5 * time.Millisecond
	web.Start()
	t.Cleanup(web.Close)
	one := web.Listener.Addr().String()
	// An idle timeout of HTTP/2 runs before the first request, too.
	two := listen(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		if serveHTTP2Once(conn) == nil {
			served.Add(1)
		}
	})
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
	before := served.Load()
	for served.Load() < before+20 {
		s.next(t)
	}
	wantAllPassed(t, registry)
}

// serveHTTP2Once answers the first request of a connection with status 200 and
// ends its direction. It reads until the client closes: unread bytes would reset
// the connection and could lose the answer.
func serveHTTP2Once(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, len(xhttp2.ClientPreface))); err != nil {
		return err
	}
	out := bufio.NewWriter(conn)
	framer := xhttp2.NewFramer(out, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *xhttp2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *xhttp2.HeadersFrame:
			const status200 = 0x80 | 8 // an entry of the static table, RFC 7541, appendix A
			err = framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: []byte{status200}, EndHeaders: true, EndStream: true})
			if err = errors.Join(err, out.Flush(), conn.(*net.TCPConn).CloseWrite()); err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, conn)
			return err
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return err
		}
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
