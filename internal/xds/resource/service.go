package resource

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// overADS is the source of everything that a resource refers to: the stream
// that the resource itself came on.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// awaitedOverADS is overADS without a time after which Envoy goes on without an
// answer. After Envoy's own 15 seconds a new cluster would be used without endpoints,
// and one that changed would lose those that it had.
func awaitedOverADS() *corev3.ConfigSource {
	c := overADS()
	c.InitialFetchTimeout = durationpb.New(0)
	return c
}

// StaticOf makes the resource of a service that does not depend on who asks: a
// cluster, listener or route under the name by which it was asked for, which
// may be an xdstp name or an alias. What it refers to is named alike, but not by the alias. A cluster of which not
// all is for gRPC clients is another one for them. Errors wrap ErrRefused.
func StaticOf(kind Kind, s *isobar.Service, name string, grpc bool) (proto.Message, error) {
	switch kind {
	case Cluster:
		return clusterOf(s, name, grpc)
	case Listener:
		return listenerOf(s, name)
	case Route:
		return routeOf(s, name)
	case Endpoints, Other:
	}
	return nil, rpc.Refusedf("type", "%s is no static resource", kind)
}

// listenerOf makes the API listener of a service, which gRPC clients ask for by
// the name in their target. Its routes come over ADS.
func listenerOf(s *isobar.Service, name string) (*listenerv3.Listener, error) {
	router, err := Packed(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := Packed(&hcmv3.HttpConnectionManager{
		StatPrefix: s.Name, // Envoy demands one
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: routesOf(name, s.Name)},
		},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: manager}}, checkName(s.Name)
}

// routeOf makes the routes of a service: everything goes to its cluster.
func routeOf(s *isobar.Service, name string) (*routev3.RouteConfiguration, error) {
	return &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    s.Name,
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: Renamed(name, Cluster)},
					// Envoy would cut off every request after 15 s; deadlines
					// are the caller's, as they are with gRPC.
					Timeout: durationpb.New(0),
				}},
			}},
		}},
	}, checkName(s.Name)
}

// Packed is anypb.New with a deterministic encoding.
func Packed(m proto.Message) (*anypb.Any, error) {
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, deterministic); err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return out, nil
}

func checkName(name string) error {
	if name == "" || len(name) > DefaultNameSize {
		return rpc.Refusedf("name", "%d bytes long, want 1 to %d", len(name), DefaultNameSize)
	}
	return nil
}
