package admission_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// yieldServer serves HTTP on a listener of at most 16 connections, 8 of one address.
type yieldServer struct {
	address string
	release chan struct{} // closed: /hold answers
	held    atomic.Int64  // requests of /hold that are whole
	metrics *prometheus.Registry
}

// yieldingServer starts one. /hold answers when release is closed, /large writes more
// than the kernel buffers.
func yieldingServer(t *testing.T) *yieldServer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &yieldServer{address: l.Addr().String(), release: make(chan struct{}), metrics: prometheus.NewRegistry()}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			s.held.Add(1)
			<-s.release
		}
	})
	large := make([]byte, 64<<20)
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	var open sync.WaitGroup
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		default:
		}
	}}
	admission.TrackRequests(srv)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(admission.Listen(l, admission.Limits{Most: 16, Metrics: admission.NewMetrics(s.metrics), What: admission.OfOperators, Yield: true}))
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		open.Wait() // Close closes connections and does not wait for their handlers
	})
	return s
}

func send(t *testing.T, address, text string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// lives asks whether the server lives, on a connection of its own.
func lives(t *testing.T, address string) error {
	t.Helper()
	c := send(t, address, "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", answer.Status)
	}
	return nil
}

// TestSilentConnections: connections on which nothing was sent keep no other client out.
func TestSilentConnections(t *testing.T) {
	s := yieldingServer(t)
	for range 20 {
		send(t, s.address, "")
	}
	for range 20 {
		if err := lives(t, s.address); err != nil {
			t.Fatal(err)
		}
	}
}

// urgentListener is a listener of at most 4 connections, 2 of one address, of which those
// that begin with "urgent" are urgent. What it accepts comes by the channel.
func urgentListener(t *testing.T) (address string, accepted chan net.Conn) {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := admission.Listen(inner, admission.Limits{Most: 4, Yield: true, Urgent: func(head []byte) bool { return bytes.HasPrefix(head, []byte("urgent")) }})
	accepted = make(chan net.Conn, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		close(accepted)
		for c := range accepted {
			_ = c.Close()
		}
	})
	return inner.Addr().String(), accepted
}

// entered is the next connection that the listener accepted.
func entered(t *testing.T, accepted <-chan net.Conn) net.Conn {
	t.Helper()
	select {
	case c := <-accepted:
		return c
	case <-time.After(10 * time.Second):
		t.Fatal("the listener accepts no connection")
		return nil
	}
}

// isOpen reports whether the listener's end of a connection is open.
func isOpen(c net.Conn) bool { return c.SetDeadline(time.Time{}) == nil }

// TestUrgentConnectionsStay: other connections of the same address don't take the place of
// one whose request is urgent, until it has waited for a second.
func TestUrgentConnectionsStay(t *testing.T) {
	address, accepted := urgentListener(t)
	send(t, address, "urgent")
	urgent := entered(t, accepted)
	began := time.Now()
	var last net.Conn
	for range 20 {
		send(t, address, "x")
		if next := entered(t, accepted); last != nil && isOpen(last) {
			t.Error("no connection has made room")
		} else {
			last = next
		}
	}
	if !isOpen(urgent) && time.Since(began) < time.Second {
		t.Error("an urgent connection has made room")
	}
	testhelp.Eventually(t, "one that is urgent for long makes room", func() bool {
		send(t, address, "x")
		entered(t, accepted)
		return !isOpen(urgent)
	})
}

// TestUrgentConnectionsGetIn: where no connection makes room, there is room for a few
// urgent ones, and for no others.
func TestUrgentConnectionsGetIn(t *testing.T) {
	address, accepted := urgentListener(t)
	var open []net.Conn
	for range 10 { // 2 of the address, and 8 more
		send(t, address, "urgent")
		open = append(open, entered(t, accepted))
	}
	for _, text := range []string{"x", "urgent"} {
		c := send(t, address, text)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got in: %v", text, err)
		}
	}
	for i, c := range open {
		if !isOpen(c) {
			t.Errorf("urgent connection %d has made room", i)
		}
	}
}

// TestConnectionsWithoutRequestYield: whatever clients do with connections on which the
// server has nothing to do, another client gets in.
func TestConnectionsWithoutRequestYield(t *testing.T) {
	for name, text := range map[string]string{
		"one byte":      "G",
		"half a header": "GET /livez HTTP/1.1\r\nHost: local",
		"half a body":   "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc",
		"half a chunk":  "POST /hold HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"kept alive":    "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := yieldingServer(t)
			for range 20 {
				send(t, s.address, text)
			}
			for range 20 {
				if err := lives(t, s.address); err != nil {
					t.Fatal(err)
				}
			}
			if n := testhelp.Series(t, s.metrics, "isobar_admission_refused_total")["yielded,admin_connection"]; n == 0 {
				t.Errorf("none is counted: %v", testhelp.Series(t, s.metrics, "isobar_admission_refused_total"))
			}
		})
	}
}

// TestStuckReadersYield: clients that don't read their answers make room after a while.
func TestStuckReadersYield(t *testing.T) {
	s := yieldingServer(t)
	for range 20 {
		send(t, s.address, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	testhelp.Eventually(t, "another client gets in", func() bool { return lives(t, s.address) == nil })
}

// TestRequestsUnderWayStay: what the server is answering is not closed for others.
func TestRequestsUnderWayStay(t *testing.T) {
	s := yieldingServer(t)
	var open []net.Conn
	for range 8 { // one address may have half of 16
		open = append(open, send(t, s.address, "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"))
	}
	testhelp.Eventually(t, "all are being answered", func() bool { return s.held.Load() == 8 })
	for range 20 {
		if lives(t, s.address) == nil {
			t.Error("another client gets in where no connection may make room")
		}
	}
	close(s.release)
	for i, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Errorf("request %d: %q, %v", i, line, err)
		}
	}
	testhelp.Eventually(t, "connections that were answered wait and make room", func() bool { return lives(t, s.address) == nil })
}
