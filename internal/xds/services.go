package xds

import (
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/wire"
)

// Register adds the aggregated service and those of clusters, listeners and
// routes. That of endpoints is the package eds.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, aggregated{server: s})
	clusterservice.RegisterClusterDiscoveryServiceServer(r, clusters{server: s})
	listenerservice.RegisterListenerDiscoveryServiceServer(r, listeners{server: s})
	routeservice.RegisterRouteDiscoveryServiceServer(r, routes{server: s})
}

type aggregated struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	server *Server
}

func (a aggregated) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.server.Serve(s, "")
}

func (a aggregated) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.server.ServeDelta(s, "")
}

type clusters struct {
	clusterservice.UnimplementedClusterDiscoveryServiceServer

	server *Server
}

func (c clusters) StreamClusters(s clusterservice.ClusterDiscoveryService_StreamClustersServer) error {
	return c.server.Serve(s, wire.ClusterURL)
}

func (c clusters) DeltaClusters(s clusterservice.ClusterDiscoveryService_DeltaClustersServer) error {
	return c.server.ServeDelta(s, wire.ClusterURL)
}

type listeners struct {
	listenerservice.UnimplementedListenerDiscoveryServiceServer

	server *Server
}

func (l listeners) StreamListeners(s listenerservice.ListenerDiscoveryService_StreamListenersServer) error {
	return l.server.Serve(s, wire.ListenerURL)
}

func (l listeners) DeltaListeners(s listenerservice.ListenerDiscoveryService_DeltaListenersServer) error {
	return l.server.ServeDelta(s, wire.ListenerURL)
}

type routes struct {
	routeservice.UnimplementedRouteDiscoveryServiceServer

	server *Server
}

func (r routes) StreamRoutes(s routeservice.RouteDiscoveryService_StreamRoutesServer) error {
	return r.server.Serve(s, wire.RouteURL)
}

func (r routes) DeltaRoutes(s routeservice.RouteDiscoveryService_DeltaRoutesServer) error {
	return r.server.ServeDelta(s, wire.RouteURL)
}
