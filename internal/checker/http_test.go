package checker_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
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
	t.Helper()
	w := &web{}
	w.status.Store(http.StatusOK)
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that fail are meant to
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
			with := func(hc *corev3.HealthCheck) *specifier {
				c := cluster("shop", hc, srv.address())
				if tt.secure {
					c.TransportSocketMatches = anyTLS(t, nil)
				}
				return spec(c)
			}
			s := start(t).stream()
			s.specify(t, with(patiently(overHTTP(tt.change))))
			s.until(t, "shop", srv.address(), healthy)
			r := srv.last()
			if r.Proto != tt.proto || r.Host != "shop.example" || r.RequestURI != "/healthz?full=1" || r.Method != http.MethodGet || r.UserAgent() != "Isobar/HC" {
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
			s.specify(t, with(overHTTP(tt.change)))
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
			{Header: &corev3.HeaderValue{Key: "X-Format", Value: "100%% of %%FOO%% %BAR% %"}},
		}
		h.RequestHeadersToRemove = []string{"user-agent"}
	})
	c := cluster("shop", hc, srv.address())
	c.LocalityEndpoints[0].Endpoints[0].HealthCheckConfig = healthCheckConfig("own.example", 0, "")
	s := start(t).stream()
	s.specify(t, spec(c))
	s.until(t, "shop", srv.address(), healthy)
	r := srv.last()
	if r.Method != http.MethodPost || r.ContentLength != 2 || r.Host != "own.example" || r.UserAgent() != "" || len(r.Header["X-Check"]) != 2 {
		t.Errorf("the request was %s of %d bytes for %s, %v", r.Method, r.ContentLength, r.Host, r.Header)
	}
	if got, want := r.Header.Get("X-Format"), "100% of %FOO% %BAR% %"; got != want {
		t.Errorf("a value that is a format string was sent as %q, want %q", got, want)
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

// TestSwitchedProtocols: an answer with which the server begins to speak something
// else is judged by its status, and nothing waits for its end.
func TestSwitchedProtocols(t *testing.T) {
	upgrades := listen(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		hang(conn)
	})
	s := start(t).stream()
	wanted := overHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) {
		h.ExpectedStatuses = []*typev3.Int64Range{{Start: 101, End: 102}}
	})
	s.specify(t, spec(cluster("socket", patiently(wanted), upgrades), cluster("shop", patiently(overHTTP()), upgrades)))
	s.until(t, "socket", upgrades, healthy)
	s.until(t, "shop", upgrades, unhealthy)
}
