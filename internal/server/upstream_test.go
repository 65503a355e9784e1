package server_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// lister is a control plane that lists one assignment.
type lister struct {
	endpointservicev3.UnimplementedEndpointDiscoveryServiceServer

	assignment *endpointv3.ClusterLoadAssignment
}

func (l *lister) StreamEndpoints(s endpointservicev3.EndpointDiscoveryService_StreamEndpointsServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	listed, err := anypb.New(l.assignment)
	if err != nil {
		return err
	}
	if err := s.Send(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: resource.EndpointsURL, Resources: []*anypb.Any{listed}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// beside runs a test with a server beside another control plane.
func beside(t *testing.T, cfg *config.Config, plane endpointservicev3.EndpointDiscoveryServiceServer, f func(w *world, other *grpc.Server)) {
	t.Helper()
	pipe := bufconn.Listen(1 << 20)
	other := grpc.NewServer()
	endpointservicev3.RegisterEndpointDiscoveryServiceServer(other, plane)
	served := make(chan error, 1)
	go func() { served <- other.Serve(pipe) }()
	defer func() {
		other.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	kept := store.NewMemory()
	defer func() { _ = kept.Close() }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }
	runWith(t, cfg, server.Options{Store: kept, DialSource: dial}, func(w *world) { f(w, other) })
}

// TestEndpointsOfAnotherControlPlane: Envoys that have clusters elsewhere, and
// endpoints and load reports here, are balanced by configured capacity over
// what another control plane lists.
func TestEndpointsOfAnotherControlPlane(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		m := &endpointv3.ClusterLoadAssignment{ClusterName: "listed"}
		settings := cfg.Services[0]
		settings.Localities = nil
		for _, l := range cfg.Services[0].Localities {
			lb := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: l.Locality.Region, Zone: l.Locality.Zone}, Priority: 5}
			for _, e := range l.Endpoints {
				host, _, _ := net.SplitHostPort(e.Address)
				lb.LbEndpoints = append(lb.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
					}}},
				}}})
			}
			m.Endpoints = append(m.Endpoints, lb)
			l.Endpoints = nil
			settings.Localities = append(settings.Localities, l)
		}
		cfg.Services = nil
		cfg.Discovery.XDS = &config.XDSDiscovery{Server: "other:1", Services: []config.ListedService{{EDSName: "listed", Service: settings}}}
		beside(t, cfg, &lister{assignment: m}, func(w *world, other *grpc.Server) {
			w.start(clients("us/c", 3, constant(1200), func(o *fleet.AgentOptions) { o.Kind, o.Endpoints = fleet.KindEnvoy, true })...)
			for range 20 {
				noViolations(t, w.tick())
			}
			s, ok := w.server.Plan().Service("checkout")
			if !ok || len(s.Result.Sources) != 1 || s.Result.Sources[0].Source != isobar.MustLocality("us/c") {
				t.Fatalf("the plan has %+v", s)
			}
			published, _ := shares(w.server.Plan())
			// 1,200 requests/s: 800 fit into each of the two zones of the region.
			if near := published[2] + published[3]; near < 0.99 || published[2] > 0.68 || published[3] > 0.68 {
				t.Errorf("shares %v", published)
			}
			var status admin.Status
			if w.read("127.0.0.1", "/v1/status", &status); !status.OK {
				t.Errorf("in order: %q", status.Attention)
			}
			previewBeside(t, w)
			other.Stop()
			for range 20 {
				noViolations(t, w.tick())
			}
			status = admin.Status{}
			w.read("127.0.0.1", "/v1/status", &status)
			if told := strings.Join(admin.AttentionTexts(status.Attention), "\n"); !strings.Contains(told, "the control plane other:1 has listed no endpoints since ") {
				t.Errorf("without the other control plane: %q", told)
			}
			attends(t, status, admin.DiscoveryLost)
		})
	})
}

// changing lists one assignment after the other.
type changing struct {
	endpointservicev3.UnimplementedEndpointDiscoveryServiceServer

	next chan *endpointv3.ClusterLoadAssignment
}

func (l *changing) StreamEndpoints(s endpointservicev3.EndpointDiscoveryService_StreamEndpointsServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	for version := 1; ; version++ {
		select {
		case <-s.Context().Done():
			return nil
		case m := <-l.next:
			listed, err := anypb.New(m)
			if err != nil {
				return err
			}
			v := strconv.Itoa(version)
			if err := s.Send(&discoveryv3.DiscoveryResponse{VersionInfo: v, Nonce: v, TypeUrl: resource.EndpointsURL, Resources: []*anypb.Any{listed}}); err != nil {
				return err
			}
		}
	}
}

// TestAttentionToAnotherControlPlane: an assignment that it removes, or that can't
// be used, is told, and what it listed before stays.
func TestAttentionToAnotherControlPlane(t *testing.T) {
	assignment := func(port uint32) *endpointv3.ClusterLoadAssignment {
		return &endpointv3.ClusterLoadAssignment{ClusterName: "listed", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality: &corev3.Locality{Region: "us", Zone: "a"},
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}}},
			}}}},
		}}}
	}
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		cfg.Services = nil
		cfg.Discovery.XDS = &config.XDSDiscovery{Server: "other:1", EmptyHold: time.Hour, Services: []config.ListedService{{EDSName: "listed", Service: isobar.Service{Name: "checkout"}}}}
		plane := &changing{next: make(chan *endpointv3.ClusterLoadAssignment, 1)}
		plane.next <- assignment(80)
		beside(t, cfg, plane, func(w *world, _ *grpc.Server) {
			w.ticks(4)
			quiet(t, w.status(), admin.DiscoveryWaiting, admin.DiscoveryHeld, admin.DiscoveryRefused)
			for _, tt := range []struct {
				code  admin.Code
				lists *endpointv3.ClusterLoadAssignment
			}{
				{admin.DiscoveryRefused, assignment(70_000)},
				{admin.DiscoveryHeld, &endpointv3.ClusterLoadAssignment{ClusterName: "listed"}},
			} {
				plane.next <- tt.lists
				w.ticks(4)
				if a := attends(t, w.status(), tt.code); a.Service != "checkout" || a.Severity != admin.Warning {
					t.Errorf("%+v", a)
				}
				if s, ok := w.server.Plan().Service("checkout"); !ok || len(s.Sites) != 1 {
					t.Errorf("%s: the endpoints of before are gone", tt.code)
				}
			}
		})
	})
}

// previewBeside: a preview knows what the other control plane lists, and that a
// file may ask it for more, or for nothing any more.
func previewBeside(t *testing.T, w *world) {
	t.Helper()
	const file = `
network: {latency_ms: [{from: us, to: eu, ms: 80}, {from: us/c, to: us/a, ms: 1}, {from: us/c, to: us/b, ms: 1.9}]}
discovery: {xds: {server: "other:1", insecure: true, services: [{name: more}, {name: checkout, eds_name: listed, localities: [
  {locality: eu/a, max_rate: 1000, concurrency: 40}, {locality: eu/b, max_rate: 1000, concurrency: 40},
  {locality: us/a, max_rate: 500, concurrency: 40}, {locality: us/b, max_rate: 1000, concurrency: 40}]}]}}
`
	var out admin.Previewed
	if code := w.order("/v1/plan", file, &out); code != 200 || len(out.Services) != 1 {
		t.Fatalf("half the capacity in us/a: %d %+v", code, out)
	}
	if d := &out.Services[0]; d.Service != "checkout" || d.Change != plan.ChangeChanged {
		t.Errorf("%+v", d)
	}
	if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Error, "service more of discovery.xds has no endpoints before") {
		t.Errorf("warnings %+v", out.Warnings)
	}
	out = admin.Previewed{}
	if code := w.order("/v1/plan", "discovery: {}", &out); code != 200 || len(out.Services) != 1 || out.Services[0].Change != plan.ChangeChanged {
		t.Errorf("without the other control plane: %d %+v", code, out)
	}
	if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Error, "service checkout: held: it was removed from the configuration while clients send 1200 requests/s") {
		t.Errorf("warnings %+v", out.Warnings)
	}
	var refused admin.Problem
	if code := w.order("/v1/plan", "network: {}", &refused); code != 400 || refused.Place != "1:1" {
		t.Errorf("half a file: %d %+v", code, refused)
	}
}

// silentLister is a control plane that never says anything.
type silentLister struct {
	endpointservicev3.UnimplementedEndpointDiscoveryServiceServer
}

func (silentLister) StreamEndpoints(s endpointservicev3.EndpointDiscoveryService_StreamEndpointsServer) error {
	<-s.Context().Done()
	return nil
}

// TestServicesOfASilentControlPlane: a server that starts without state beside a
// control plane that says nothing removes nothing from clients that come from
// an earlier server: they keep cluster, listener and endpoints.
func TestServicesOfASilentControlPlane(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		settings := cfg.Services[0]
		settings.Localities = nil
		cfg.Services = nil
		cfg.Discovery.XDS = &config.XDSDiscovery{Server: "other:1", Services: []config.ListedService{{EDSName: "it-all", Service: settings}}}
		beside(t, cfg, silentLister{}, func(w *world, _ *grpc.Server) {
			keepsSets(t, w)
			keepsResources(t, w)
			var status admin.Status
			w.read("127.0.0.1", "/v1/status", &status)
			if told := strings.Join(admin.AttentionTexts(status.Attention), "\n"); status.OK || !strings.Contains(told, "checkout: its clients get no endpoints yet: the other control plane has not listed it-all") {
				t.Errorf("status %q", told)
			}
			attends(t, status, admin.DiscoveryWaiting)
		})
	})
}

var awaitingNode = &corev3.Node{Id: "e", Locality: &corev3.Locality{Region: "us", Zone: "c"}}

// keepsSets: clusters and listeners come as whole sets, and who is not in them is
// gone.
func keepsSets(t *testing.T, w *world) {
	t.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*discoveryv3.DiscoveryRequest{
		{Node: awaitingNode, TypeUrl: resource.ClusterURL},
		{TypeUrl: resource.ListenerURL, ResourceNames: []string{"checkout"}},
	} {
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Recv(); err != nil || got.GetTypeUrl() != r.GetTypeUrl() || len(got.GetResources()) != 1 {
			t.Errorf("%s: %v, %v, want that of the service", r.GetTypeUrl(), got, err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
}

// keepsResources: a client that has the service, from an earlier server.
func keepsResources(t *testing.T, w *world) {
	t.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{resource.ClusterURL, resource.EndpointsURL} {
		r := &discoveryv3.DeltaDiscoveryRequest{
			Node: awaitingNode, TypeUrl: url, ResourceNamesSubscribe: []string{"checkout"}, InitialResourceVersions: map[string]string{"checkout": "0a"},
		}
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		got, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if url == resource.ClusterURL {
			if len(got.GetResources()) != 1 || len(got.GetRemovedResources()) > 0 {
				t.Errorf("cluster: %v", got)
			}
			continue
		}
		// There is no assignment, not an empty one: Envoy ignores that, and waits.
		if len(got.GetResources()) > 0 || !slices.Equal(got.GetRemovedResources(), []string{"checkout"}) {
			t.Errorf("endpoints: %v", got)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
}
