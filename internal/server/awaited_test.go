package server_test

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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
