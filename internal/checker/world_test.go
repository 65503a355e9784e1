package checker_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/checker"
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
func start(t testing.TB, change ...func(*checker.Options)) *world {
	t.Helper()
	m := &management{streams: make(chan *hdsStream)}
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	healthv3.RegisterHealthDiscoveryServiceServer(srv, m)
	var running sync.WaitGroup
	running.Go(func() { _ = srv.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///management",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	opts := checker.Options{
		Conn: conn, ID: "checker-1", Cluster: "checkers", Version: "test",
		Locality: isobar.MustLocality("us-east/b/rack-1"),
	}
	for _, f := range change {
		f(&opts)
	}
	c, err := checker.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { c.Run(ctx) })
	w := &world{t: t, server: m, stop: sync.OnceFunc(func() {
		cancel()
		_ = conn.Close()
		srv.Stop()
		running.Wait()
	})}
	t.Cleanup(w.stop)
	return w
}

// patience bounds every wait, far above what any takes.
const patience = 20 * time.Second

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

func (s *hdsStream) specify(t testing.TB, spec *specifier) {
	t.Helper()
	select {
	case s.send <- spec:
	case <-time.After(patience):
		t.Fatal("the stream takes no specifier")
	}
}

// next is the next report.
func (s *hdsStream) next(t testing.TB) *message {
	t.Helper()
	select {
	case r := <-s.reports:
		return r
	case <-time.After(2 * time.Minute):
		t.Fatal("no report came")
		return nil
	}
}

// until waits for a report in which an endpoint has a status.
func (s *hdsStream) until(t testing.TB, cluster, address string, want corev3.HealthStatus) {
	t.Helper()
	deadline := time.Now().Add(patience)
	var last *message
	for time.Now().Before(deadline) {
		last = s.next(t)
		if got, ok := statusIn(last, cluster, address); ok && got == want {
			return
		}
	}
	t.Fatalf("%s of %s never was %s; last report %v", address, cluster, want, last)
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

// spec builds a specifier; reports come every 20 ms.
func spec(clusters ...*healthv3.ClusterHealthCheck) *specifier {
	return &specifier{ClusterHealthChecks: clusters, Interval: durationpb.New(20 * time.Millisecond)}
}

// cluster has its endpoints ("IP:port" or a path) in one locality.
func cluster(name string, hc *corev3.HealthCheck, addresses ...string) *healthv3.ClusterHealthCheck {
	return &healthv3.ClusterHealthCheck{
		ClusterName: name, HealthChecks: []*corev3.HealthCheck{hc},
		LocalityEndpoints: []*healthv3.LocalityEndpoints{group("us-east", "b", addresses...)},
	}
}

func group(region, zone string, addresses ...string) *healthv3.LocalityEndpoints {
	g := &healthv3.LocalityEndpoints{Locality: &corev3.Locality{Region: region, Zone: zone}}
	for _, a := range addresses {
		g.Endpoints = append(g.Endpoints, endpoint(a))
	}
	return g
}

func endpoint(address string) *endpointv3.Endpoint {
	if address[0] == '/' {
		return &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: address}}}}
	}
	return &endpointv3.Endpoint{Address: socket(address)}
}

func socket(address string) *corev3.Address {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: atoi(port)},
	}}}
}

// check is a health check with the usual thresholds; kind may be nil for TCP.
func check(kind func(*corev3.HealthCheck)) *corev3.HealthCheck {
	hc := &corev3.HealthCheck{
		Timeout: durationpb.New(300 * time.Millisecond), Interval: durationpb.New(50 * time.Millisecond),
		NoTrafficInterval:  durationpb.New(50 * time.Millisecond),
		UnhealthyThreshold: wrapperspb.UInt32(2), HealthyThreshold: wrapperspb.UInt32(2),
		HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
	}
	if kind != nil {
		kind(hc)
	}
	return hc
}

// script is a prober whose outcomes a test decides, by address.
type script struct {
	mu     sync.Mutex
	says   map[string]checker.Outcome
	probes map[string][]time.Time
	open   int
	most   int // probes at once
	now    int
	takes  time.Duration
}

func newScript() *script {
	return &script{says: map[string]checker.Outcome{}, probes: map[string][]time.Time{}}
}

func (s *script) use(o *checker.Options) {
	o.NewProber = func(t checker.Target, _ *corev3.HealthCheck) (checker.Prober, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open++
		return &scripted{script: s, address: t.Address}, nil
	}
}

func (s *script) set(address string, o checker.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says[address] = o
}

func (s *script) times(address string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.probes[address]...)
}

func (s *script) count() (probers, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.most
}

type scripted struct {
	script  *script
	address string
}

func (p *scripted) Probe(ctx context.Context) (checker.Outcome, error) {
	s := p.script
	s.mu.Lock()
	out := s.says[p.address]
	s.probes[p.address] = append(s.probes[p.address], time.Now())
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if out == checker.TimedOut {
		<-ctx.Done()
		return out, ctx.Err()
	}
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
		}
	}
	if out != checker.Passed {
		return out, errors.New("as the script says")
	}
	return out, nil
}

func (p *scripted) Close() {
	p.script.mu.Lock()
	defer p.script.mu.Unlock()
	p.script.open--
}
