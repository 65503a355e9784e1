package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// webBackend is a real HTTP server (HTTP/1 and HTTP/2 without TLS) that answers
// with its name and does what the query of a request asks for.
type webBackend struct {
	name    string
	address string
	server  *http.Server

	// capacity is the requests/s of which it reports its utilization (ORCA) with
	// every answer; 0 reports nothing.
	capacity float64

	mu      sync.Mutex
	seen    map[string]bool // ids of requests, for ?first
	arrived []time.Time     // requests of the last second
}

func startWebBackend(t *testing.T, name string) *webBackend {
	t.Helper()
	return startWebBackendAt(t, name, "127.0.0.1:0")
}

func startWebBackendAt(t *testing.T, name, address string) *webBackend {
	t.Helper()
	lis, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &webBackend{name: name, address: lis.Addr().String(), seen: map[string]bool{}}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: patience, Protocols: protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.server.Serve(lis) // ends with Close
	}()
	t.Cleanup(func() {
		_ = b.server.Close()
		<-done
	})
	return b
}

// ServeHTTP answers with 200 and the name of the backend, unless the query has:
// wait=DURATION before the headers, abort=head or abort=body to end the stream
// there, hang=body to stop after the headers, status=CODE, and first=CODE for the
// first request of an id=ID.
func (b *webBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if d, err := time.ParseDuration(q.Get("wait")); err == nil {
		pause(r.Context(), d)
	}
	code := http.StatusOK
	for _, text := range []string{q.Get("status"), b.first(q.Get("id"), q.Get("first"))} {
		if n, err := strconv.Atoi(text); err == nil {
			code = n
		}
	}
	if q.Get("abort") == "head" {
		panic(http.ErrAbortHandler)
	}
	if b.capacity > 0 {
		w.Header().Set("Endpoint-Load-Metrics", b.loadMetrics(time.Now()))
	}
	partial := q.Get("abort") == "body" || q.Get("hang") == "body"
	if partial {
		w.Header().Set("Content-Length", "1000")
	}
	w.WriteHeader(code)
	_, _ = io.WriteString(w, b.name)
	if partial {
		_ = http.NewResponseController(w).Flush()
		if q.Get("hang") == "body" {
			pause(r.Context(), 5*time.Second)
		}
		panic(http.ErrAbortHandler)
	}
}

// first returns the code for the first request of an id.
func (b *webBackend) first(id, code string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if code == "" || b.seen[id] {
		return ""
	}
	b.seen[id] = true
	return code
}

// loadMetrics counts a request and returns the header that says which part of the
// capacity the requests of the last second need. Envoy weighs endpoints only by
// reports that have their rate, too.
func (b *webBackend) loadMetrics(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrived = append(slices.DeleteFunc(b.arrived, func(t time.Time) bool { return now.Sub(t) > time.Second }), now)
	rate := float64(len(b.arrived))
	return fmt.Sprintf("TEXT cpu_utilization=%.4f,rps_fractional=%.1f", rate/b.capacity, rate)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// startCodeBackend runs a gRPC server that answers a call of /SERVICE/CODE with
// that status, and of /SERVICE/late_CODE with a message first. HANG never answers.
func startCodeBackend(t *testing.T) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(s)
		name := full[strings.LastIndexByte(full, '/')+1:]
		if err := s.RecvMsg(&testpb.Empty{}); err != nil {
			return err
		}
		if name == "HANG" {
			pause(s.Context(), 10*time.Second)
			return nil
		}
		name, late := strings.CutPrefix(name, "late_")
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(strconv.Quote(name))); err != nil {
			return fmt.Errorf("%s: %w", full, err)
		}
		if late || code == codes.OK {
			if err := s.SendMsg(&testpb.Empty{}); err != nil {
				return err
			}
		}
		return status.Error(code, "as asked")
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return lis.Addr().String()
}

// startFullListener returns the address of a listener whose queue of connections
// is full, so that no connection to it is ever made.
func startFullListener(t *testing.T) string {
	t.Helper()
	lis := listenBacklog(t)
	for range 64 { // the kernel keeps a few more than the backlog
		d := net.Dialer{Timeout: 200 * time.Millisecond}
		conn, err := d.DialContext(t.Context(), "tcp", lis)
		if err != nil {
			return lis
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue of a listener is not full after 64 connections")
	return ""
}

// listenBacklog listens without accepting, with the shortest queue there is.
func listenBacklog(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
