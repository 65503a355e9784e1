package resource

import (
	"fmt"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routerv2 "github.com/envoyproxy/go-control-plane/envoy/config/filter/http/router/v2"
	hcmv2 "github.com/envoyproxy/go-control-plane/envoy/config/filter/network/http_connection_manager/v2"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// translate encodes a resource of v3 in an API version. It returns nil where the API version has
// no such resource.
//
// Nearly all messages that v3 took over from v2 kept their field numbers, so
// the bytes of v3 are read with the types of v2, and what those don't know is
// left out.
func translate(api rpc.APIVersion, kind Kind, m proto.Message) ([]byte, error) {
	value, err := translated(api, m)
	if err != nil {
		return nil, fmt.Errorf("encode %s as %s: %w", kind, api, err)
	}
	return value, nil
}

func translated(api rpc.APIVersion, m proto.Message) ([]byte, error) {
	if api == rpc.V3 {
		return deterministic.Marshal(m)
	}
	switch m := m.(type) {
	case *endpointv3.ClusterLoadAssignment:
		if api == rpc.V2017 {
			return marshalOnly(assignment2017(m), assignmentFields2017)
		}
		return reread(m, &apiv2.ClusterLoadAssignment{})
	case *clusterv3.Cluster:
		old, err := clusterBefore3(m)
		if err != nil {
			return nil, err
		}
		if api == rpc.V2017 {
			return cluster2017(old)
		}
		return reread(old, &apiv2.Cluster{})
	case *listenerv3.Listener:
		if api == rpc.V2017 {
			return nil, nil // API listeners came later
		}
		return listenerV2(m)
	default: // routes
		if api == rpc.V2017 {
			return marshalOnly(m, routeFields2017)
		}
		return reread(m, &apiv2.RouteConfiguration{})
	}
}

// reread encodes m as an older message that has the same field numbers.
func reread(m, as proto.Message) ([]byte, error) {
	encoded, err := deterministic.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, as); err != nil {
		return nil, err
	}
	return deterministic.Marshal(as)
}

// clusterBefore3 is a cluster as v2 could describe it. Utilization as a weight
// within a locality came with v3, weighted localities are older. The protocol
// had fields of its own.
func clusterBefore3(m *clusterv3.Cluster) (*clusterv3.Cluster, error) {
	c := proto.CloneOf(m)
	if c.GetLoadBalancingPolicy() != nil {
		c.LoadBalancingPolicy = nil
		obeyLocalityWeights(c.GetCommonLbConfig())
	}
	sourceBefore3(c.GetEdsClusterConfig().GetEdsConfig())
	sourceBefore3(c.GetLrsServer())
	if config := c.GetTypedExtensionProtocolOptions()[httpOptionsName]; config != nil {
		options := &httpv3.HttpProtocolOptions{}
		if err := config.UnmarshalTo(options); err != nil {
			return nil, err
		}
		c.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{} //nolint:staticcheck // the field of that time
		if options.GetExplicitHttpConfig() == nil {
			c.ProtocolSelection = clusterv3.Cluster_USE_DOWNSTREAM_PROTOCOL //nolint:staticcheck // as above
		}
	}
	c.TypedExtensionProtocolOptions = nil
	var err error
	c.TransportSocket, err = socketV2(c.GetTransportSocket())
	return c, err
}

// cluster2017 encodes a cluster in the API version of 2017; nil where that would be
// plaintext instead of TLS. Endpoints of a protocol that is not known
// beforehand are spoken to in HTTP/1.
func cluster2017(c *clusterv3.Cluster) ([]byte, error) {
	if c.GetTransportSocket() != nil {
		return nil, nil
	}
	if c.GetProtocolSelection() == clusterv3.Cluster_USE_DOWNSTREAM_PROTOCOL { //nolint:staticcheck // as above
		c.Http2ProtocolOptions = nil //nolint:staticcheck // as above
	}
	return marshalOnly(c, clusterFields2017)
}

// sourceBefore3 lets a source be of the client's own version.
func sourceBefore3(s *corev3.ConfigSource) {
	if s != nil {
		s.ResourceApiVersion = 0
	}
}

// listenerV2 translates an API listener with what is nested in it.
func listenerV2(m *listenerv3.Listener) ([]byte, error) {
	manager := &hcmv3.HttpConnectionManager{}
	if err := m.GetApiListener().GetApiListener().UnmarshalTo(manager); err != nil {
		return nil, err
	}
	sourceBefore3(manager.GetRds().GetConfigSource())
	for _, f := range manager.GetHttpFilters() {
		config, err := Packed(&routerv2.Router{})
		if err != nil {
			return nil, err
		}
		f.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}
	}
	nested, err := reread(manager, &hcmv2.HttpConnectionManager{})
	if err != nil {
		return nil, err
	}
	l := proto.CloneOf(m)
	l.Address = apiListenerAddress()
	l.ApiListener = &listenerv3.ApiListener{ApiListener: anyOf(&hcmv2.HttpConnectionManager{}, nested)}
	return reread(l, &apiv2.Listener{})
}

// anyOf wraps an encoded message of the type of m.
func anyOf(m proto.Message, encoded []byte) *anypb.Any {
	return &anypb.Any{TypeUrl: TypePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: encoded}
}

// apiListenerAddress is the address of a listener of v2, whose validation wants
// one. No client listens on the address of an API listener.
func apiListenerAddress() *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{},
	}}}
}
