package xds_test

import (
	"errors"
	"io"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// oneService is a plan with one service whose endpoints are all gone.
type oneService struct{}

func (oneService) VersionString() string      { return "1" }
func (oneService) RequestLimit(string) uint32 { return 0 }
func (oneService) Awaited() []isobar.Service  { return nil }

func (oneService) ServiceNames() []string { return []string{"a"} }

func (oneService) Spec(name string) *isobar.Service {
	if name != "a" {
		return nil
	}
	return &isobar.Service{Name: "a"}
}

func (oneService) Assignment(service string, source isobar.Locality) *isobar.Assignment {
	return &isobar.Assignment{Service: service, Source: source, OverprovisioningFactor: 140}
}

func (oneService) Basis(string) any { return nil }

func dial(t *testing.T) endpointservice.EndpointDiscoveryServiceClient {
	t.Helper()
	engine := xds.New(xds.Options{})
	engine.Publish(view.NewBuilder(view.Options{}).Build(oneService{}, nil))
	server := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
	xds.RegisterEDS(server, engine, false)
	conn, stop := testhelp.Serve(t, server)
	t.Cleanup(func() {
		stop()
		engine.Stop()
	})
	return endpointservice.NewEndpointDiscoveryServiceClient(conn)
}

var want = &endpointv3.ClusterLoadAssignment{ClusterName: "a"}

// The type may be left out: the method tells it.
func TestStream(t *testing.T) {
	s, err := dial(t).StreamEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{"a"}}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := &endpointv3.ClusterLoadAssignment{}
	if err := r.GetResources()[0].UnmarshalTo(got); err != nil || !proto.Equal(got, want) || r.GetTypeUrl() != resource.EndpointsURL {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestDelta(t *testing.T) {
	s, err := dial(t).DeltaEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a"}}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := &endpointv3.ClusterLoadAssignment{}
	if err := r.GetResources()[0].GetResource().UnmarshalTo(got); err != nil || !proto.Equal(got, want) || r.GetTypeUrl() != resource.EndpointsURL {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}
