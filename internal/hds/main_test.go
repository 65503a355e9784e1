package hds_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a server and one connection to it, in virtual time.
type harness struct {
	t    *testing.T
	srv  *hds.Server
	conn *grpc.ClientConn
}

// inBubble runs a test against a server over real gRPC in memory.
func inBubble(t *testing.T, opts hds.Options, test func(h *harness)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := hds.New(opts)
		g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
		srv.Register(g)
		conn, stop := testhelp.Serve(t, g)
		defer srv.Stop()
		defer stop()
		test(&harness{t: t, srv: srv, conn: conn})
	})
}

func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// pass lets virtual time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// service is one service with two endpoints in r/a and one in r/b.
func service(name string, host byte, checks ...isobar.HealthCheck) isobar.Service {
	if checks == nil {
		checks = []isobar.HealthCheck{tcpCheck()}
	}
	ip := func(i byte) string {
		return (&net.TCPAddr{IP: net.IPv4(10, 0, host, i), Port: 80}).String()
	}
	return isobar.Service{
		Name: name, HealthChecks: checks, Checkers: isobar.Checkers{Count: 1, Domains: 1},
		Localities: []isobar.ServiceLocality{
			{Locality: isobar.MustLocality("r/a"), Endpoints: []isobar.Endpoint{{Address: ip(1)}, {Address: ip(2)}}},
			{Locality: isobar.MustLocality("r/b"), Endpoints: []isobar.Endpoint{{Address: ip(3)}}},
		},
	}
}

func tcpCheck() isobar.HealthCheck {
	return isobar.HealthCheck{
		Protocol: isobar.CheckTCP, TCP: &isobar.TCPCheck{}, Interval: time.Second, Timeout: time.Second,
		UnhealthyThreshold: 2, HealthyThreshold: 1,
	}
}

func topology(services ...isobar.Service) *isobar.Topology {
	t := &isobar.Topology{Services: services}
	t.Normalize()
	return t
}

// all designates every endpoint of a topology to each of some checkers.
func all(t *isobar.Topology, ids ...string) []health.Designation {
	var keys []health.Key
	for _, s := range t.Services {
		for _, l := range s.Localities {
			for _, e := range l.Endpoints {
				keys = append(keys, health.Key{Service: s.Name, Address: e.Address})
			}
		}
	}
	var out []health.Designation
	for _, id := range ids {
		out = append(out, health.Designation{Checker: id, Endpoints: keys})
	}
	return out
}

// client is one stream of a checker.
type client struct {
	t      *testing.T
	stream healthv3.HealthDiscoveryService_StreamHealthCheckClient
	cancel context.CancelFunc
}

type (
	request  = healthv3.HealthCheckRequestOrEndpointHealthResponse
	response = healthv3.EndpointHealthResponse
)

func (h *harness) open() *client {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	stream, err := healthv3.NewHealthDiscoveryServiceClient(h.conn).StreamHealthCheck(ctx)
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	return &client{t: h.t, stream: stream, cancel: cancel}
}

// enter opens a stream and says who it is.
func (h *harness) enter(id, locality string, protocols ...healthv3.Capability_Protocol) *client {
	h.t.Helper()
	c := h.open()
	c.send(hello(id, locality, protocols...))
	synctest.Wait()
	return c
}

// leave ends a stream and waits until the server has noticed.
func (c *client) leave() {
	c.cancel()
	synctest.Wait()
}

func hello(id, locality string, protocols ...healthv3.Capability_Protocol) *request {
	if protocols == nil {
		protocols = []healthv3.Capability_Protocol{healthv3.Capability_HTTP, healthv3.Capability_TCP}
	}
	return &request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
		HealthCheckRequest: &healthv3.HealthCheckRequest{
			Node:       &corev3.Node{Id: id, UserAgentName: "envoy", Locality: locality3(locality)},
			Capability: &healthv3.Capability{HealthCheckProtocols: protocols},
		},
	}}
}

func locality3(s string) *corev3.Locality {
	l := isobar.MustLocality(s)
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

func (c *client) send(m *request) {
	c.t.Helper()
	// Of a stream that was refused, only receiving says why.
	if err := c.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

func (c *client) report(m *response) {
	c.t.Helper()
	c.send(&request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: m}})
	synctest.Wait()
}

func (c *client) recv() *healthv3.HealthCheckSpecifier {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := convert.CheckSpecifier(m); err != nil {
		c.t.Errorf("a specifier that breaks the rules: %v", err)
	}
	return m
}

type answer struct {
	m   *healthv3.HealthCheckSpecifier
	err error
}

// next returns what the server says next, once it does.
func (c *client) next() <-chan answer {
	out := make(chan answer, 1)
	go func() {
		m, err := c.stream.Recv()
		out <- answer{m, err}
	}()
	synctest.Wait()
	return out
}

func endpoint(address string, s corev3.HealthStatus) *healthv3.EndpointHealth {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		panic(err)
	}
	return &healthv3.EndpointHealth{HealthStatus: s, Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: a.IP.String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port)},
		}},
	}}}
}

// grouped is a report on endpoints of one locality of a service, with the flat
// copies that Envoy adds.
func grouped(service, locality string, endpoints ...*healthv3.EndpointHealth) *response {
	m := flat(endpoints...)
	m.ClusterEndpointsHealth = []*healthv3.ClusterEndpointsHealth{{
		ClusterName: service,
		LocalityEndpointsHealth: []*healthv3.LocalityEndpointsHealth{{
			Locality: locality3(locality), EndpointsHealth: endpoints,
		}},
	}}
	return m
}

// flat is a report of a build that does not know another form.
func flat(endpoints ...*healthv3.EndpointHealth) *response {
	return &response{EndpointsHealth: endpoints} //nolint:staticcheck // deprecated, and the one form of old builds
}

// clusters lists the names in a specifier, with the number of endpoints.
func clusters(m *healthv3.HealthCheckSpecifier) map[string]int {
	out := map[string]int{}
	for _, c := range m.GetClusterHealthChecks() {
		out[c.GetClusterName()] = 0
		for _, l := range c.GetLocalityEndpoints() {
			out[c.GetClusterName()] += len(l.GetEndpoints())
		}
	}
	return out
}

func raw(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func metadataOf(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
