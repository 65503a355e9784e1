package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// failure is how a server fails.
type failure int32

const (
	works   failure = iota
	hangs           // accepts connections and never answers
	refuses         // its port is closed
	errs            // answers that it is not well
	slow            // answers, long after the timeout
)

// tooLate is how long a slow server takes to answer.
const tooLate = 3 * probeTimeout

// target is a real server that can be broken.
type target interface {
	Address() string
	Break(t testing.TB, how failure)
	Mend(t testing.TB)
}

// gated is a server in this process behind a gate.
type gated struct {
	gate *gate
	mode atomic.Int32 // failure
}

func (s *gated) Address() string { return s.gate.address.String() }

func (s *gated) Break(_ testing.TB, how failure) {
	switch how {
	case hangs:
		s.gate.hang()
	case refuses:
		s.gate.refuse()
	default:
		s.mode.Store(int32(how))
	}
}

func (s *gated) Mend(tb testing.TB) {
	tb.Helper()
	s.mode.Store(int32(works))
	s.gate.mend(tb)
}

// answer waits if the server is slow, also when nobody waits for it any more:
// a server that gives up at the client's deadline could come just before it.
// It tells whether the server is well.
func (s *gated) answer() bool {
	how := failure(s.mode.Load())
	if how == slow {
		<-time.After(tooLate)
	}
	return how != errs
}

func newWeb(tb testing.TB, n *network) target {
	tb.Helper()
	s := &gated{gate: newGate(tb, n)}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !s.answer() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}
	background(tb, srv.Serve, s.gate, func() { _ = srv.Close() })
	return s
}

// background runs a server until the end of the test.
func background(tb testing.TB, run func(net.Listener) error, l net.Listener, stop func()) {
	tb.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = run(l) // ends with stop
	}()
	tb.Cleanup(func() {
		stop()
		<-ended
	})
}

// newLine answers "pong" to each "ping" over plain TCP.
func newLine(tb testing.TB, n *network) target {
	tb.Helper()
	s := &gated{gate: newGate(tb, n)}
	go func() {
		for {
			conn, err := s.gate.Accept()
			if err != nil {
				return
			}
			go s.speak(conn)
		}
	}()
	return s
}

func (s *gated) speak(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if !s.answer() {
			_, _ = conn.Write([]byte("gone\n"))
			return
		}
		if _, err := conn.Write([]byte("pong\n")); err != nil {
			return
		}
	}
}

// rpcHealth is grpc.health.v1.Health.
type rpcHealth struct {
	healthpb.UnimplementedHealthServer

	server *gated
}

func (h *rpcHealth) Check(_ context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !h.server.answer() {
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func (h *rpcHealth) Watch(*healthpb.HealthCheckRequest, healthpb.Health_WatchServer) error {
	return status.Error(codes.Unimplemented, "checkers ask, they don't watch")
}

func newRPC(tb testing.TB, n *network) target {
	tb.Helper()
	s := &gated{gate: newGate(tb, n)}
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, &rpcHealth{server: s})
	background(tb, srv.Serve, s.gate, srv.Stop)
	return s
}

// cache is a redis-server, a process of its own.
type cache struct{ server *testhelp.Redis }

func newCache(tb testing.TB, _ *network) target {
	tb.Helper()
	return &cache{server: testhelp.NewRedis(tb)}
}

func (c *cache) Address() string { return c.server.Address }

func (c *cache) Break(tb testing.TB, how failure) {
	tb.Helper()
	var err error
	switch how {
	case works:
	case hangs: // the system accepts connections for it
		err = c.server.Cmd.Process.Signal(syscall.SIGSTOP)
	case refuses:
		c.server.Kill()
	case errs:
		c.server.Do(tb, "SET", "maintenance", "yes")
	case slow: // it answers when the pause is over
		c.server.Do(tb, "CLIENT", "PAUSE", "600000", "ALL")
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Fix starts it again, which ends all of them.
func (c *cache) Mend(tb testing.TB) {
	tb.Helper()
	c.server.Kill()
	c.server.Start(tb)
}
