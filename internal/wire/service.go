package wire

import (
	"fmt"
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	cswrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
)

// overADS is the source of everything that a resource refers to: the stream
// that the resource itself came on.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// noCircuitBreakers lifts the limits of a cluster. Unset, Envoy and gRPC cap the
// concurrent requests of each client at 1,024 and fail the rest, unseen by the
// plan: load is limited here, by ceilings and drops.
func noCircuitBreakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		Priority:           corev3.RoutingPriority_DEFAULT,
		MaxConnections:     wrapperspb.UInt32(math.MaxUint32),
		MaxPendingRequests: wrapperspb.UInt32(math.MaxUint32),
		MaxRequests:        wrapperspb.UInt32(math.MaxUint32),
		MaxRetries:         wrapperspb.UInt32(math.MaxUint32),
	}}}
}

// StaticOf makes the resource of a service that does not depend on who asks: a
// cluster, listener or route under the name by which it was asked for, which
// may be an xdstp name. What it refers to is named alike. Errors wrap
// ErrRefused.
func StaticOf(kind Kind, s *isobar.Service, name string) (proto.Message, error) {
	switch kind {
	case Cluster:
		return clusterOf(s, name)
	case Listener:
		return listenerOf(s, name)
	case Route:
		return routeOf(s, name)
	case Endpoints, Other:
	}
	return nil, refused("type", "%s is no static resource", kind)
}

// ClusterOf is StaticOf for the cluster under the service's own name: endpoints over ADS, load reports to
// the same server, locality weights obeyed, no limits of its own.
//
// gRPC turns ROUND_ROBIN into weighted localities by itself, Envoy does so by
// locality_weighted_lb_config. With ORCA both need load_balancing_policy;
// Envoy rejects that together with locality_weighted_lb_config.
func ClusterOf(s *isobar.Service) (*clusterv3.Cluster, error) { return clusterOf(s, s.Name) }

func clusterOf(s *isobar.Service, name string) (*clusterv3.Cluster, error) {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS(), ServiceName: Renamed(name, Endpoints)},
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		CircuitBreakers:      noCircuitBreakers(),
		LrsServer: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}},
			ResourceApiVersion:    corev3.ApiVersion_V3,
		},
	}
	// Named metrics that nothing depends on stay out, since applications may have
	// any number of them.
	c.LrsReportEndpointMetrics = s.ReportedMetrics()
	if !s.ORCA {
		c.CommonLbConfig = localityWeighted()
		return c, checkName(s.Name)
	}
	policy, err := orcaPolicy()
	if err != nil {
		return nil, err
	}
	c.LoadBalancingPolicy = policy
	return c, checkName(s.Name)
}

// localityWeighted has Envoy obey the weights of localities.
func localityWeighted() *clusterv3.Cluster_CommonLbConfig {
	return &clusterv3.Cluster_CommonLbConfig{
		LocalityConfigSpecifier: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		},
	}
}

// orcaPolicy is wrr_locality over client_side_weighted_round_robin, the only
// child that Envoy accepts there. Both take the first child that they know:
// round_robin is for clients that lack the other, grpc-js among them, which
// else refuse the cluster.
func orcaPolicy() (*clusterv3.LoadBalancingPolicy, error) {
	children, err := policiesOf(
		namedPolicy{"envoy.load_balancing_policies.client_side_weighted_round_robin", &cswrrv3.ClientSideWeightedRoundRobin{}},
		namedPolicy{"envoy.load_balancing_policies.round_robin", &roundrobinv3.RoundRobin{}},
	)
	if err != nil {
		return nil, err
	}
	return policiesOf(namedPolicy{"envoy.load_balancing_policies.wrr_locality", &wrrv3.WrrLocality{EndpointPickingPolicy: children}})
}

// namedPolicy is the name of an extension and its configuration.
type namedPolicy struct {
	name   string
	config proto.Message
}

// policiesOf lists policies, best first.
func policiesOf(list ...namedPolicy) (*clusterv3.LoadBalancingPolicy, error) {
	out := new(clusterv3.LoadBalancingPolicy)
	for _, p := range list {
		config, err := packed(p.config)
		if err != nil {
			return nil, err
		}
		out.Policies = append(out.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: p.name, TypedConfig: config},
		})
	}
	return out, nil
}

// ListenerOf makes the API listener of a service, which gRPC clients ask for by
// the name in their target. Its routes come over ADS.
func ListenerOf(s *isobar.Service) (*listenerv3.Listener, error) { return listenerOf(s, s.Name) }

func listenerOf(s *isobar.Service, name string) (*listenerv3.Listener, error) {
	router, err := packed(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := packed(&hcmv3.HttpConnectionManager{
		StatPrefix: s.Name, // Envoy demands one
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: Renamed(name, Route)},
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

// RouteOf makes the routes of a service: everything goes to its cluster.
func RouteOf(s *isobar.Service) (*routev3.RouteConfiguration, error) { return routeOf(s, s.Name) }

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

// packed is anypb.New with a deterministic encoding.
func packed(m proto.Message) (*anypb.Any, error) {
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, deterministic); err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return out, nil
}

func checkName(name string) error {
	if name == "" || len(name) > defaultNameSize {
		return refused("name", "%d bytes long, want 1 to %d", len(name), defaultNameSize)
	}
	return nil
}
