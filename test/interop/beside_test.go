package interop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpresource "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"

	root "github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

const edsName = "outbound|80||checkout"

// peer is go-control-plane as the other control plane: it gives a gRPC client
// its listener and route, whose cluster is Isobar's, and Isobar the endpoints.
type peer struct {
	t        *testing.T
	cache    cache.SnapshotCache
	address  string
	server   *grpc.Server
	backends []*backend
	version  int
}

func startPeer(t *testing.T, backends ...*backend) *peer {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil), address: lis.Addr().String(), server: grpc.NewServer(), backends: backends}
	ctx, cancel := context.WithCancel(context.Background())
	s := server.NewServer(ctx, p.cache, nil)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(p.server, s)
	endpointservicev3.RegisterEndpointDiscoveryServiceServer(p.server, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.server.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		cancel()
		p.server.Stop()
		<-done
	})
	service := &root.Service{Name: "checkout"}
	listener, err := resource.StaticOf(resource.Listener, service, service.Name, true)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := resource.StaticOf(resource.Route, service, service.Name, true)
	if err != nil {
		t.Fatal(err)
	}
	route := routes.(*routev3.RouteConfiguration)
	route.GetVirtualHosts()[0].GetRoutes()[0].GetRoute().ClusterSpecifier = clusterNamed("xdstp://isobar/envoy.config.cluster.v3.Cluster/checkout")
	p.set("client", map[gcpresource.Type][]types.Resource{gcpresource.ListenerType: {listener}, gcpresource.RouteType: {route}})
	p.list(corev3.HealthStatus_HEALTHY)
	return p
}

// list gives Isobar the endpoints; the first has the health.
func (p *peer) list(first corev3.HealthStatus) {
	p.t.Helper()
	p.set("isobar", map[gcpresource.Type][]types.Resource{gcpresource.EndpointType: {p.assignment(p.backends, first)}})
}

// assignment lists backends, one in each zone; the first has the health.
func (p *peer) assignment(backends []*backend, first corev3.HealthStatus) *endpointv3.ClusterLoadAssignment {
	p.t.Helper()
	m := &endpointv3.ClusterLoadAssignment{ClusterName: edsName}
	for i, b := range backends {
		host, port := hostPort(p.t, b.address)
		e := &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
			}}},
		}}}
		if i == 0 {
			e.HealthStatus = first
		}
		m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Region: "us", Zone: string(rune('a' + i))}, LbEndpoints: []*endpointv3.LbEndpoint{e},
		})
	}
	return m
}

func (p *peer) set(node string, resources map[gcpresource.Type][]types.Resource) {
	p.t.Helper()
	p.version++
	snapshot, err := cache.NewSnapshot(fmt.Sprint(p.version), resources)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cache.SetSnapshot(context.Background(), node, snapshot); err != nil {
		p.t.Fatal(err)
	}
}

// TestBesideGoControlPlane: a gRPC client has its listener and route from
// go-control-plane, and cluster, endpoints and load reports with Isobar, which
// has the endpoints from go-control-plane. What that lists is followed; without
// it, and over a restart of Isobar, what it listed last stays.
func TestBesideGoControlPlane(t *testing.T) {
	for _, service := range []string{"eds", "ads"} {
		t.Run(service, func(t *testing.T) { beside(t, service) })
	}
}

func beside(t *testing.T, service string) {
	t.Helper()
	p := startPeer(t, startBackend(t, "a", ""), startBackend(t, "b", ""))
	s := startIsobar(t, fmt.Sprintf(`discovery:
  xds:
    server: %q
    service: %s
    services:
      - name: checkout
        eds_name: %q
        localities: [{locality: us/a, max_rate: 10000}, {locality: us/b, max_rate: 10000}]
`, p.address, service, edsName))
	builder, err := xds.NewXDSResolverWithConfigForTesting([]byte(fmt.Sprintf(`{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"authorities": {"isobar": {"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}]}},
		"node": {"id": "client", "cluster": "shop", "locality": {"region": "us", "zone": "a"}}}`, p.address, s.xds)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///checkout", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	served := func(want string) {
		t.Helper()
		await(t, "calls to "+want, func() error {
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				var header metadata.MD
				_, err := testpb.NewTestServiceClient(conn).EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&header), grpc.WaitForReady(true))
				cancel()
				if err != nil {
					return err
				}
				if got := header.Get("hostname"); len(got) != 1 || got[0] != want {
					return fmt.Errorf("a call was served by %q", got)
				}
			}
			return nil
		})
	}
	served("a")
	await(t, "the client's load in the plan", func() error {
		served("a")
		_, _, err := s.source("checkout")
		return err
	})
	p.list(corev3.HealthStatus_DRAINING)
	served("b")
	p.server.Stop()
	served("b")
	s.kill()
	s.run()
	if v, err := s.plan("checkout"); err != nil || len(v.Services[0].Localities) != 2 {
		t.Errorf("after a restart without the other control plane the plan is %+v, %v", v, err)
	}
}

func clusterNamed(name string) *routev3.RouteAction_Cluster {
	return &routev3.RouteAction_Cluster{Cluster: name}
}

func hostPort(t *testing.T, address string) (host string, port uint32) {
	t.Helper()
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return ap.Addr().String(), uint32(ap.Port())
}
