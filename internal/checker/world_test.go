package checker_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

type (
	message   = healthv3.HealthCheckRequestOrEndpointHealthResponse
	specifier = healthv3.HealthCheckSpecifier
)

// management is an HDS server made of the generated types: it notes what
// comes and sends what a test tells it to.
type management struct {
	healthv3.UnimplementedHealthDiscoveryServiceServer

	streams chan *hdsStream // every stream, once its first message is there
}

type hdsStream struct {
	hello   *healthv3.HealthCheckRequest
	reports chan *message // as they come; the oldest are lost when nobody looks
	send    chan *specifier
	end     chan error
}

func (m *management) StreamHealthCheck(stream healthv3.HealthDiscoveryService_StreamHealthCheckServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s := &hdsStream{
		hello: first.GetHealthCheckRequest(), reports: make(chan *message, 100),
		send: make(chan *specifier), end: make(chan error),
	}
	broken := make(chan error, 1)
	go func() {
		for {
			got, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			for len(s.reports) == cap(s.reports) {
				<-s.reports
			}
			s.reports <- got
		}
	}()
	select {
	case m.streams <- s:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	for {
		select {
		case spec := <-s.send:
			if err := stream.Send(spec); err != nil {
				return err
			}
		case err := <-s.end:
			return err
		case err := <-broken:
			return err
		}
	}
}

// world is a checker and its management server, over a pipe in memory.
type world struct {
	t      testing.TB
	server *management
	stop   func()
}

// start runs both; they end with the test, or with stop.
func start(tb testing.TB, change ...func(*checker.Options)) *world {
	tb.Helper()
	m := &management{streams: make(chan *hdsStream)}
	srv := grpc.NewServer()
	healthv3.RegisterHealthDiscoveryServiceServer(srv, m)
	conn, stop := testhelp.Serve(tb, srv, grpc.WithIdleTimeout(0))
	opts := checker.Options{
		Conn: conn, ID: "checker-1", Cluster: "checkers", Version: "test",
		Locality: isobar.MustLocality("us-east/b/rack-1"),
	}
	for _, f := range change {
		f(&opts)
	}
	c, err := checker.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	w := &world{t: tb, server: m, stop: sync.OnceFunc(func() {
		cancel()
		stop()
		running.Wait()
	})}
	tb.Cleanup(w.stop)
	return w
}

// patience bounds every wait, far above what any takes.
const patience = time.Minute

// stream waits for the checker to open one.
func (w *world) stream() *hdsStream {
	w.t.Helper()
	select {
	case s := <-w.server.streams:
		return s
	case <-time.After(2 * time.Minute): // back-off included; in a bubble it costs nothing
		w.t.Fatal("no stream came")
		return nil
	}
}

func (s *hdsStream) specify(tb testing.TB, spec *specifier) {
	tb.Helper()
	select {
	case s.send <- proto.Clone(spec).(*specifier): // the test may go on to change it
	case <-time.After(patience):
		tb.Fatal("the stream takes no specifier")
	}
}

// next is the next report.
func (s *hdsStream) next(tb testing.TB) *message {
	tb.Helper()
	select {
	case r := <-s.reports:
		return r
	case <-time.After(2 * time.Minute):
		tb.Fatal("no report came")
		return nil
	}
}

// until waits for a report in which an endpoint has a status.
func (s *hdsStream) until(tb testing.TB, cluster, address string, want corev3.HealthStatus) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	var last *message
	for time.Now().Before(deadline) {
		last = s.next(tb)
		if got, ok := statusIn(last, cluster, address); ok && got == want {
			return
		}
	}
	tb.Fatalf("%s of %s never was %s; last report %v", address, cluster, want, last)
}

// statusIn looks an endpoint up by cluster and address.
func statusIn(m *message, cluster, address string) (corev3.HealthStatus, bool) {
	for _, c := range m.GetEndpointHealthResponse().GetClusterEndpointsHealth() {
		if c.GetClusterName() != cluster {
			continue
		}
		for _, l := range c.GetLocalityEndpointsHealth() {
			for _, e := range l.GetEndpointsHealth() {
				if addressText(e.GetEndpoint().GetAddress()) == address {
					return e.GetHealthStatus(), true
				}
			}
		}
	}
	return corev3.HealthStatus_UNKNOWN, false
}

func addressText(a *corev3.Address) string {
	if p := a.GetPipe(); p != nil {
		return p.GetPath()
	}
	return net.JoinHostPort(a.GetSocketAddress().GetAddress(), itoa(a.GetSocketAddress().GetPortValue()))
}
