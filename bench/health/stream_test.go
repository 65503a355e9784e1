package health

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

type (
	message  = healthv3.HealthCheckRequestOrEndpointHealthResponse
	request  = healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest
	response = healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse
)

// stream is the server's side of one checker's stream, without a transport.
type stream struct {
	grpc.ServerStream

	ctx      context.Context
	idle     chan struct{} // signalled when the server has handled what it got, and asks for more
	incoming chan []byte
	told     chan *healthv3.HealthCheckSpecifier
}

func (s *stream) Context() context.Context { return s.ctx }

// SendMsg takes what the checker is told.
func (s *stream) SendMsg(m any) error {
	told, ok := m.(*healthv3.HealthCheckSpecifier)
	if !ok {
		return fmt.Errorf("a %T is sent", m)
	}
	s.told <- told
	return nil
}

// handlers finds the handler of streams of v3 among what a server registers.
type handlers struct {
	stream grpc.StreamHandler
}

// RegisterService implements grpc.ServiceRegistrar.
func (h *handlers) RegisterService(d *grpc.ServiceDesc, _ any) {
	if d.ServiceName == healthv3.HealthDiscoveryService_ServiceDesc.ServiceName {
		h.stream = d.Streams[0].Handler
	}
}

// RecvMsg gives the next message as gRPC does: in memory of its own.
func (s *stream) RecvMsg(m any) error {
	raw, ok := m.(*rpc.RawMessage)
	if !ok {
		return fmt.Errorf("a %T is asked for", m)
	}
	s.idle <- struct{}{}
	select {
	case data := <-s.incoming:
		raw.Data = slices.Clone(data)
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// enter opens a stream and says who it is.
func enter(b *testing.B, server *hds.Server, id string, at isobar.Locality) *stream {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	s := &stream{ctx: ctx, idle: make(chan struct{}, 1), incoming: make(chan []byte), told: make(chan *healthv3.HealthCheckSpecifier, 1)}
	ended := make(chan error, 1)
	var h handlers
	server.Register(&h)
	go func() { ended <- h.stream(nil, s) }()
	b.Cleanup(func() {
		cancel()
		<-ended //nolint:errcheck // the stream was cancelled
	})
	<-s.idle
	s.say(encoded(b, &message{RequestType: &request{HealthCheckRequest: &healthv3.HealthCheckRequest{
		Node:       &corev3.Node{Id: id, Locality: &corev3.Locality{Region: at.Region, Zone: at.Zone}},
		Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{healthv3.Capability_HTTP, healthv3.Capability_TCP}},
	}}}))
	return s
}

// say hands over a message and waits until it has been handled.
func (s *stream) say(data []byte) {
	s.incoming <- data
	<-s.idle
}

// answer is a report on all that a specifier names, in both forms as Envoy sends
// it. Endpoint i is down if down says so.
func answer(b *testing.B, spec *healthv3.HealthCheckSpecifier, down func(i int) bool) (data []byte, entries int) {
	b.Helper()
	report := &healthv3.EndpointHealthResponse{}
	var flat []*healthv3.EndpointHealth
	for _, c := range spec.GetClusterHealthChecks() {
		cluster := &healthv3.ClusterEndpointsHealth{ClusterName: c.GetClusterName()}
		for _, l := range c.GetLocalityEndpoints() {
			locality := &healthv3.LocalityEndpointsHealth{Locality: l.GetLocality()}
			for _, e := range l.GetEndpoints() {
				status := corev3.HealthStatus_HEALTHY
				if down(len(flat)) {
					status = corev3.HealthStatus_UNHEALTHY
				}
				health := &healthv3.EndpointHealth{Endpoint: e, HealthStatus: status}
				flat = append(flat, health)
				locality.EndpointsHealth = append(locality.EndpointsHealth, health)
			}
			cluster.LocalityEndpointsHealth = append(cluster.LocalityEndpointsHealth, locality)
		}
		report.ClusterEndpointsHealth = append(report.ClusterEndpointsHealth, cluster)
	}
	report.EndpointsHealth = flat //nolint:staticcheck // deprecated, and still sent by every Envoy
	return encoded(b, &message{RequestType: &response{EndpointHealthResponse: report}}), len(flat)
}

func encoded(b *testing.B, m proto.Message) []byte {
	b.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return data
}
