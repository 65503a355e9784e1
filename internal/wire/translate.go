package wire

import (
	"fmt"
	"time"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routerv2 "github.com/envoyproxy/go-control-plane/envoy/config/filter/http/router/v2"
	hcmv2 "github.com/envoyproxy/go-control-plane/envoy/config/filter/network/http_connection_manager/v2"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// translate encodes a resource of v3 in a form. It gives nil where the form has
// no such resource.
//
// Nearly all messages that v3 took over from v2 kept their field numbers, so
// the bytes of v3 are read with the types of v2, and what those don't know is
// left out.
func translate(form Form, kind Kind, m proto.Message) ([]byte, error) {
	value, err := translated(form, m)
	if err != nil {
		return nil, fmt.Errorf("encode %s in form %s: %w", kind, form, err)
	}
	return value, nil
}

func translated(form Form, m proto.Message) ([]byte, error) {
	if form == V3 {
		return deterministic.Marshal(m)
	}
	switch m := m.(type) {
	case *endpointv3.ClusterLoadAssignment:
		if form == V2017 {
			return marshalOnly(assignment2017(m), assignmentFields2017)
		}
		return reread(m, &apiv2.ClusterLoadAssignment{})
	case *clusterv3.Cluster:
		old := clusterBefore3(m)
		if form == V2017 {
			return marshalOnly(old, clusterFields2017)
		}
		return reread(old, &apiv2.Cluster{})
	case *listenerv3.Listener:
		if form == V2017 {
			return nil, nil // API listeners came later
		}
		return listenerV2(m)
	default: // routes
		if form == V2017 {
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

// connectTimeout is told to old clients only: it was required once. It is what
// others take by default.
const connectTimeout = 5 * time.Second

// clusterBefore3 is a cluster as v2 could describe it. Utilization as a weight
// within a locality came with v3, weighted localities are older.
func clusterBefore3(m *clusterv3.Cluster) *clusterv3.Cluster {
	c := proto.CloneOf(m)
	c.ConnectTimeout = durationpb.New(connectTimeout)
	if c.GetLoadBalancingPolicy() != nil {
		c.LoadBalancingPolicy = nil
		c.CommonLbConfig = localityWeighted()
	}
	sourceBefore3(c.GetEdsClusterConfig().GetEdsConfig())
	sourceBefore3(c.GetLrsServer())
	return c
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
		config, err := packed(&routerv2.Router{})
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
	l.ApiListener = &listenerv3.ApiListener{ApiListener: &anypb.Any{
		TypeUrl: typePrefix + string((&hcmv2.HttpConnectionManager{}).ProtoReflect().Descriptor().FullName()),
		Value:   nested,
	}}
	return reread(l, &apiv2.Listener{})
}

// AssignmentFrom reads an encoded assignment of some form: the inverse of the
// translation. What the form could not say is not there.
func AssignmentFrom(form Form, encoded []byte) (*endpointv3.ClusterLoadAssignment, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	options := proto.UnmarshalOptions{DiscardUnknown: form != V2017}
	if err := options.Unmarshal(encoded, m); err != nil {
		return nil, fmt.Errorf("read an assignment of form %s: %w", form, err)
	}
	if form == V2017 {
		return m, readDrop2017(m.GetPolicy())
	}
	return m, nil
}
