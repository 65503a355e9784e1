package checker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/checker"
)

const (
	healthy   = corev3.HealthStatus_HEALTHY
	unhealthy = corev3.HealthStatus_UNHEALTHY
	timeout   = corev3.HealthStatus_TIMEOUT
)

func overHTTP(change ...func(*corev3.HealthCheck_HttpHealthCheck)) *corev3.HealthCheck {
	h := &corev3.HealthCheck_HttpHealthCheck{Path: "/healthz?full=1", Host: "shop.example"}
	for _, f := range change {
		f(h)
	}
	return check(func(hc *corev3.HealthCheck) {
		hc.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: h}
	})
}

func http2(h *corev3.HealthCheck_HttpHealthCheck) { h.CodecClientType = typev3.CodecClientType_HTTP2 }

// web is an HTTP server whose status and protocol can be watched.
type web struct {
	*httptest.Server

	status  atomic.Int32
	hang    atomic.Bool
	conns   atomic.Int32
	mu      sync.Mutex
	request *http.Request
}

func newWeb(t *testing.T, secure bool, protocols func(*http.Protocols)) *web {
	w := &web{}
	w.status.Store(http.StatusOK)
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			w.conns.Add(1)
		}
	}
	p := new(http.Protocols)
	protocols(p)
	w.Config.Protocols = p
	if secure {
		w.EnableHTTP2 = p.HTTP2()
		w.StartTLS()
	} else {
		w.Start()
	}
	t.Cleanup(w.Close)
	return w
}

func (w *web) serve(rw http.ResponseWriter, r *http.Request) {
	if w.hang.Load() {
		<-r.Context().Done()
		return
	}
	w.mu.Lock()
	w.request = r
	w.mu.Unlock()
	rw.WriteHeader(int(w.status.Load()))
	_, _ = io.WriteString(rw, "state: all is well\n")
}

func (w *web) last() *http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.request
}

func (w *web) address() string { return w.Listener.Addr().String() }

func http1Only(p *http.Protocols)  { p.SetHTTP1(true) }
func http2Clear(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }
func http2TLS(p *http.Protocols)   { p.SetHTTP1(true); p.SetHTTP2(true) }

// TestHTTP probes real servers in each form of HTTP, through failure and back.
func TestHTTP(t *testing.T) {
	for _, tt := range []struct {
		name      string
		secure    bool
		protocols func(*http.Protocols)
		change    func(*corev3.HealthCheck_HttpHealthCheck)
		proto     string
	}{
		{"HTTP/1.1", false, http1Only, func(*corev3.HealthCheck_HttpHealthCheck) {}, "HTTP/1.1"},
		{"h2c", false, http2Clear, http2, "HTTP/2.0"},
		{"HTTP/1.1 over TLS", true, http1Only, func(*corev3.HealthCheck_HttpHealthCheck) {}, "HTTP/1.1"},
		{"HTTP/2 over TLS", true, http2TLS, http2, "HTTP/2.0"},
		{"by ALPN", true, http2TLS, func(h *corev3.HealthCheck_HttpHealthCheck) { h.UseAlpnProtocol = true }, "HTTP/2.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := newWeb(t, tt.secure, tt.protocols)
			c := cluster("shop", overHTTP(tt.change), srv.address())
			if tt.secure {
				c.TransportSocketMatches = anyTLS(t, nil)
			}
			s := start(t).stream()
			s.specify(t, spec(c))
			s.until(t, "shop", srv.address(), healthy)
			r := srv.last()
			if r.Proto != tt.proto || r.Host != "shop.example" || r.RequestURI != "/healthz?full=1" || r.Method != "GET" || r.UserAgent() != "Isobar/HC" {
				t.Errorf("the request was %s %s %s of %s by %s", r.Proto, r.Method, r.RequestURI, r.Host, r.UserAgent())
			}
			before := srv.conns.Load()
			srv.status.Store(http.StatusInternalServerError)
			s.until(t, "shop", srv.address(), unhealthy)
			srv.status.Store(http.StatusOK)
			s.until(t, "shop", srv.address(), healthy)
			if after := srv.conns.Load(); before != 1 || after != 1 {
				t.Errorf("%d connections, then %d: want one all the time", before, after)
			}
			srv.hang.Store(true)
			s.until(t, "shop", srv.address(), timeout)
			srv.hang.Store(false)
			s.until(t, "shop", srv.address(), healthy)
			srv.CloseClientConnections()
			srv.Close()
			s.until(t, "shop", srv.address(), unhealthy)
		})
	}
}

// TestHTTPRules covers what decides besides the status 200.
func TestHTTPRules(t *testing.T) {
	srv := newWeb(t, false, http1Only)
	srv.status.Store(http.StatusNoContent)
	block := func(s string) *corev3.HealthCheck_Payload {
		return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Binary{Binary: []byte(s)}}
	}
	expect := func(h *corev3.HealthCheck_HttpHealthCheck) {
		h.ExpectedStatuses = []*typev3.Int64Range{{Start: 200, End: 300}}
	}
	for _, tt := range []struct {
		name   string
		status int32
		change func(*corev3.HealthCheck_HttpHealthCheck)
		want   corev3.HealthStatus
	}{
		{"only 200", 204, func(*corev3.HealthCheck_HttpHealthCheck) {}, unhealthy},
		{"a range", 204, expect, healthy},
		{"the end is not in the range", 300, expect, unhealthy},
		{"the body has all in order", 200, func(h *corev3.HealthCheck_HttpHealthCheck) {
			h.Receive = []*corev3.HealthCheck_Payload{block("state"), block("well")}
		}, healthy},
		{"the body has it in another order", 200, func(h *corev3.HealthCheck_HttpHealthCheck) {
			h.Receive = []*corev3.HealthCheck_Payload{block("well"), block("state")}
		}, unhealthy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv.status.Store(tt.status)
			s := start(t).stream()
			s.specify(t, spec(cluster("shop", overHTTP(tt.change), srv.address()), cluster("other", check(nil), srv.address())))
			s.until(t, "other", srv.address(), healthy) // some probes have passed by now
			for range 10 {
				s.next(t)
			}
			s.until(t, "shop", srv.address(), tt.want)
		})
	}
}

func TestHTTPRequest(t *testing.T) {
	srv := newWeb(t, false, http1Only)
	hc := overHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) {
		h.Method = corev3.RequestMethod_POST
		h.Send = &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: "7b7d"}}
		h.RequestHeadersToAdd = []*corev3.HeaderValueOption{
			{Header: &corev3.HeaderValue{Key: "x-check", Value: "one"}},
			{Header: &corev3.HeaderValue{Key: "X-Check", Value: "two"}},
		}
		h.RequestHeadersToRemove = []string{"user-agent"}
	})
	c := cluster("shop", hc, srv.address())
	c.LocalityEndpoints[0].Endpoints[0].HealthCheckConfig = healthCheckConfig("own.example", 0, "")
	s := start(t).stream()
	s.specify(t, spec(c))
	s.until(t, "shop", srv.address(), healthy)
	r := srv.last()
	if r.Method != "POST" || r.ContentLength != 2 || r.Host != "own.example" || r.UserAgent() != "" || len(r.Header["X-Check"]) != 2 {
		t.Errorf("the request was %s of %d bytes for %s, %v", r.Method, r.ContentLength, r.Host, r.Header)
	}
}

// TestNoReuse makes a connection for each probe where the check says so.
func TestNoReuse(t *testing.T) {
	srv := newWeb(t, false, http1Only)
	hc := overHTTP()
	hc.ReuseConnection = no()
	s := start(t).stream()
	s.specify(t, spec(cluster("shop", hc, srv.address())))
	s.until(t, "shop", srv.address(), healthy)
	for srv.conns.Load() < 3 {
		s.next(t)
	}
}

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

func refused(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing is served
	return l.Addr().String()
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
	none := refused(t)
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
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-served })
	hangs, none, address := listen(t, "tcp", "127.0.0.1:0", hang), refused(t), l.Addr().String()

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
	always := overHTTP()
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
		if c := r.GetEndpointHealthResponse().GetClusterEndpointsHealth(); len(c) == 5 && len(r.GetEndpointHealthResponse().GetEndpointsHealth()) == 0 {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("still reported: %v", r)
		}
	}
	broken.Store(false)
	s.until(t, "http", srv.address(), healthy)
}
