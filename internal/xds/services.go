package xds

import (
	"context"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2" // for reflection
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// service is a discovery service of one API version.
type service struct {
	name  string // full name
	noun  string // ends the names of its methods
	proto string // file that defines it
	only  resource.Kind
	api   rpc.APIVersion
	delta bool
}

// services lists what Register serves. That of endpoints is RegisterEDS.
func services() []service {
	const ads, v2 = "AggregatedResources", "envoy.api.v2."
	return []service{
		{"envoy.service.discovery.v3.AggregatedDiscoveryService", ads, "envoy/service/discovery/v3/ads.proto", resource.Other, rpc.V3, true},
		{"envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", "envoy/service/cluster/v3/cds.proto", resource.Cluster, rpc.V3, true},
		{"envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", "envoy/service/listener/v3/lds.proto", resource.Listener, rpc.V3, true},
		{"envoy.service.route.v3.RouteDiscoveryService", "Routes", "envoy/service/route/v3/rds.proto", resource.Route, rpc.V3, true},

		{"envoy.service.discovery.v2.AggregatedDiscoveryService", ads, "envoy/service/discovery/v2/ads.proto", resource.Other, rpc.V2, true},
		{v2 + "ClusterDiscoveryService", "Clusters", "envoy/api/v2/cds.proto", resource.Cluster, rpc.V2, true},
		{v2 + "ListenerDiscoveryService", "Listeners", "envoy/api/v2/lds.proto", resource.Listener, rpc.V2, true},
		{v2 + "RouteDiscoveryService", "Routes", "envoy/api/v2/rds.proto", resource.Route, rpc.V2, true},

		{v2 + "AggregatedDiscoveryService", ads, "", resource.Other, rpc.V2017, false},
	}
}

// Register adds the aggregated service and those of clusters, listeners and
// routes, in all API versions. On a listener that is for clients of 2017 alone, say so:
// there the methods of v2 are those of 2017.
func Register(r grpc.ServiceRegistrar, s Streams, only2017 bool) {
	for _, v := range services() {
		if only2017 {
			if v.api == rpc.V3 || v.name == "envoy.service.discovery.v2.AggregatedDiscoveryService" {
				continue
			}
			v.api, v.delta = rpc.V2017, false
		}
		r.RegisterService(Desc(s, v.name, v.proto, v.noun, Method{Only: v.only.URLIn(v.api), API: v.api}, v.delta), s)
	}
}

// RegisterEDS adds the service of endpoints alone, for fleets that have another control
// plane for everything else, in all API versions: with the methods beside its own that
// it had in 2017: load reports were one. On a listener that is for clients of
// 2017 alone, say so: there the methods of v2 are those of 2017.
func RegisterEDS(r grpc.ServiceRegistrar, s Streams, only2017 bool, more2017 ...grpc.StreamDesc) {
	const noun = "Endpoints"
	api := rpc.V2
	if only2017 {
		api = rpc.V2017
	} else {
		r.RegisterService(Desc(s, "envoy.service.endpoint.v3.EndpointDiscoveryService", "envoy/service/endpoint/v3/eds.proto", noun,
			Method{Only: resource.EndpointsURL, API: rpc.V3}, true), s)
	}
	old := Desc(s, "envoy.api.v2.EndpointDiscoveryService", "envoy/api/v2/eds.proto", noun,
		Method{Only: resource.EndpointsURLv2, API: api}, !only2017)
	old.Streams = append(old.Streams, more2017...)
	r.RegisterService(old, s)
}

// Streams serves resources.
type Streams interface {
	Serve(stream grpc.ServerStream, m Method) error
	// Turns are what Fetch is called in.
	Turns() rpc.Turns
	Fetch(ctx context.Context, r *discoveryv3.DiscoveryRequest, m Method) (*rpc.Frame, error)
}

// Desc describes a discovery service to gRPC: its name, the file that defines
// it ("" = none that reflection knows), and the noun that its methods end with.
// All API versions of a service take and give the same bytes, so one description
// serves them.
func Desc(s Streams, name, proto, noun string, m Method, delta bool) *grpc.ServiceDesc {
	stream := func(name string, delta bool) grpc.StreamDesc {
		m := m
		m.Delta = delta
		return grpc.StreamDesc{
			StreamName: name, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, g grpc.ServerStream) error { return s.Serve(g, m) },
		}
	}
	d := &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{stream("Stream"+noun, false)}}
	if proto != "" {
		d.Metadata = proto
	}
	if m.Only != "" {
		d.Methods = []grpc.MethodDesc{fetchMethod(s, name, "Fetch"+noun, m)}
	}
	if delta {
		d.Streams = append(d.Streams, stream("Delta"+noun, true))
	}
	return d
}

// fetchMethod describes a method that answers one request.
func fetchMethod(s Streams, service, name string, m Method) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			handle := func(ctx context.Context, request any) (any, error) {
				return s.Fetch(ctx, request.(*discoveryv3.DiscoveryRequest), m) //nolint:forcetypeassert // decoded below
			}
			request := &discoveryv3.DiscoveryRequest{}
			if err := s.Turns().Decode(ctx, decode, request); err != nil {
				return nil, err
			}
			defer s.Turns().GiveBack()
			if intercept == nil {
				return handle(ctx, request)
			}
			return intercept(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, handle)
		},
	}
}
