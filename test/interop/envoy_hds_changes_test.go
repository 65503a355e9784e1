package interop

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// endpoint is a backend that speaks all that checks ask for on one port: HTTP/1
// and HTTP/2, each in plaintext and over TLS. Its behaviour can be changed.
type endpoint struct {
	address string
	status  atomic.Int32 // of HTTP answers
	slow    atomic.Int64 // time before a TLS handshake or an answer
	hang    atomic.Bool  // it accepts and never answers
	cut     atomic.Bool  // it closes each connection at once

	lis    net.Listener
	plain  chan net.Conn
	secure chan net.Conn
	done   chan struct{}

	mu   sync.Mutex
	last *http.Request
	open []net.Conn // that were accepted since the last reset
}

// refuse closes the port and all connections.
func (e *endpoint) refuse() {
	_ = e.lis.Close()
	e.reset()
}

// reset closes all connections.
func (e *endpoint) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.open {
		_ = c.Close()
	}
	e.open = nil
}

// chanListener hands over connections that were accepted elsewhere.
type chanListener struct {
	*endpoint

	from chan net.Conn
}

func (l chanListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.from:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l chanListener) Close() error   { return nil }
func (l chanListener) Addr() net.Addr { return l.lis.Addr() }

// peeked is a connection whose first bytes were looked at.
type peeked struct {
	net.Conn

	r *bufio.Reader
}

func (c peeked) Read(b []byte) (int, error) { return c.r.Read(b) }

// startEndpoint listens on an address; "" is any free port of loopback.
func startEndpoint(t *testing.T, address string) *endpoint {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	lis, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{address: lis.Addr().String(), lis: lis, plain: make(chan net.Conn), secure: make(chan net.Conn), done: make(chan struct{})}
	e.status.Store(http.StatusOK)
	certificate, err := tls.X509KeyPair(identitytest.NewCA(t).Issue(identitytest.Leaf{}))
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: e, Protocols: protocols, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	var all sync.WaitGroup
	all.Go(func() { _ = srv.Serve(chanListener{e, e.plain}) })
	all.Go(func() { _ = srv.ServeTLS(chanListener{e, e.secure}, "", "") })
	all.Go(e.accept)
	t.Cleanup(func() {
		_ = lis.Close()
		close(e.done)
		_ = srv.Close()
		all.Wait()
	})
	return e
}

func (e *endpoint) accept() {
	for {
		conn, err := e.lis.Accept()
		if err != nil {
			return
		}
		if e.cut.Load() {
			_ = conn.Close()
			continue
		}
		e.mu.Lock()
		e.open = append(e.open, conn)
		e.mu.Unlock()
		go e.sort(conn)
	}
}

// sort tells TLS from plaintext.
func (e *endpoint) sort(conn net.Conn) {
	c := peeked{conn, bufio.NewReader(conn)}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	first, err := c.r.Peek(1)
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		_ = conn.Close() // a check that only connects
		return
	}
	to := e.plain
	if first[0] == 0x16 { // handshake
		e.wait()
		to = e.secure
	}
	select {
	case to <- c:
	case <-e.done:
		_ = conn.Close()
	}
}

// wait is how long the endpoint takes.
func (e *endpoint) wait() {
	d := time.Duration(e.slow.Load())
	if e.hang.Load() {
		d = patience
	}
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-e.done:
	}
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.last = r
	e.mu.Unlock()
	if r.TLS == nil {
		e.wait()
	}
	w.WriteHeader(int(e.status.Load()))
}

// asked reports what is missing of the last request.
func (e *endpoint) asked(want func(*http.Request) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		return errors.New("no probe")
	}
	if !want(e.last) {
		return fmt.Errorf("the last probe was %s %s of %s by %s", e.last.Method, e.last.RequestURI, e.last.Host, e.last.Proto)
	}
	return nil
}

// watch polls the verdicts on services and keeps those that are wrong, until
// the test ends: all endpoints are well, new ones may wait for their first.
func (s *isobar) watch(services ...string) (wrong func() []string) {
	var mu sync.Mutex
	var found []string
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			for _, service := range services {
				list, err := s.verdicts(service)
				if err != nil {
					continue
				}
				mu.Lock()
				for _, v := range list {
					if name := v.Status.String(); name != "healthy" && name != "unknown" {
						found = append(found, fmt.Sprintf("%s %s: %s: %s", time.Now().Format("05.000"), v.Address, name, v.Why))
					}
				}
				mu.Unlock()
			}
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		close(done)
		<-stopped
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(found)
	}
}

// healthyBy waits until so many fresh votes on each endpoint of a service say
// healthy, and none says anything else, by reports of after now.
func (s *isobar) healthyBy(service string, votes, endpoints int) {
	s.t.Helper()
	since := time.Now()
	await(s.t, fmt.Sprintf("%d votes for each of %d endpoints of %s", votes, endpoints, service), func() error {
		list, err := s.verdicts(service)
		if err != nil {
			return err
		}
		if len(list) != endpoints {
			return fmt.Errorf("%d endpoints", len(list))
		}
		for _, v := range list {
			n := 0
			for _, vote := range v.Votes {
				if vote.Fresh && vote.Heard.After(since) && vote.Status.String() == "healthy" {
					n++
				}
			}
			if n != votes || v.Status.String() != "healthy" {
				return fmt.Errorf("%s: %s, %d votes: %+v", v.Address, v.Why, n, v.Votes)
			}
		}
		return nil
	})
}

// Whatever changes of a service whose endpoints are all well, none of them goes
// down: three Envoys decide, and answers over TLS take most of the timeout.
func TestEnvoyChangesOfChecksTakeNothingDown(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var all []*endpoint
			for range 3 {
				e := startEndpoint(t, "")
				e.slow.Store(int64(600 * time.Millisecond))
				all = append(all, e)
			}
			other := startEndpoint(t, "") // is probed in place of an endpoint
			web := checked{Name: "web", Checks: []map[string]any{{
				"interval": "1s", "timeout": "900ms", "unhealthy_threshold": 2, "healthy_threshold": 1,
				"http": map[string]any{"path": "/first"},
			}}}
			for i, zone := range []string{"us/a", "us/b", "us/c"} {
				web.Localities = append(web.Localities, checkedLocality{Locality: zone, Endpoints: []checkedEndpoint{{Address: all[i].address}}})
			}
			s := startIsobar(t, servicesText(t, web))
			for _, zone := range []string{"a", "b", "c"} {
				startChecker(t, version, "checker-"+zone, "us/"+zone, s)
			}
			s.healthyBy("web", 3, 3)
			wrong := s.watch("web")

			check, http1 := web.Checks[0], web.Checks[0]["http"].(map[string]any)
			path := func(want string) func(*http.Request) bool {
				return func(r *http.Request) bool { return r.RequestURI == want }
			}
			for _, change := range []struct {
				name  string
				alter func()
				asked func(*http.Request) bool // of the last endpoint
			}{
				{"path", func() { http1["path"] = "/second" }, path("/second")},
				{"method and host", func() { http1["method"], http1["host"] = http.MethodHead, "web.example" }, func(r *http.Request) bool { return r.Method == http.MethodHead && r.Host == "web.example" }},
				{"interval and thresholds", func() { check["interval"], check["unhealthy_threshold"], check["healthy_threshold"] = "1200ms", 3, 2 }, nil},
				{"TLS", func() { check["tls"] = true }, func(r *http.Request) bool { return r.TLS != nil && r.TLS.ServerName == "web.example" }},
				{"server name", func() { http1["host"] = "two.example" }, func(r *http.Request) bool { return r.TLS != nil && r.TLS.ServerName == "two.example" }},
				{"HTTP/2", func() { http1["http2"] = true }, func(r *http.Request) bool { return r.ProtoMajor == 2 && r.TLS != nil }},
				{"server name again", func() { http1["host"] = "three.example" }, func(r *http.Request) bool { return r.TLS != nil && r.TLS.ServerName == "three.example" }},
				{"plaintext", func() { delete(check, "tls") }, func(r *http.Request) bool { return r.TLS == nil }},
				{"added endpoint", func() {
					e := startEndpoint(t, "")
					all = append(all, e)
					web.Localities[0].Endpoints = append(web.Localities[0].Endpoints, checkedEndpoint{Address: e.address})
				}, func(*http.Request) bool { return true }},
				{"moved endpoint", func() {
					moved := web.Localities[0].Endpoints[1]
					web.Localities[0].Endpoints = web.Localities[0].Endpoints[:1]
					web.Localities[2].Endpoints = append(web.Localities[2].Endpoints, moved)
				}, nil},
				{"other port", func() {
					_, port, _ := net.SplitHostPort(other.address)
					var n int
					_, _ = fmt.Sscan(port, &n)
					web.Localities[1].Endpoints[0].Check = map[string]any{"port": n}
				}, nil},
				{"removed endpoint", func() { web.Localities[2].Endpoints = web.Localities[2].Endpoints[1:] }, nil},
				{"TCP", func() { delete(check, "http"); check["tcp"] = map[string]any{} }, nil},
				{"TCP over TLS", func() { check["tls"] = true }, nil},
			} {
				change.alter()
				s.configure(servicesText(t, web))
				if change.asked != nil {
					last := all[len(all)-1]
					await(t, "probe after "+change.name, func() error { return last.asked(change.asked) })
				}
				n := 0
				for _, l := range web.Localities {
					n += len(l.Endpoints)
				}
				s.healthyBy("web", 3, n)
				if list := wrong(); len(list) > 0 {
					t.Fatalf("after %s: %q", change.name, list[0])
				}
			}
		})
	}
}
