package resource

import (
	"fmt"
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// ClusterOf returns the cluster that Envoys get under the service's own name.
func ClusterOf(s *isobar.Service) (*clusterv3.Cluster, error) { return clusterOf(s, s.Name, false) }

// ListenerOf returns the API listener under the service's own name.
func ListenerOf(s *isobar.Service) (*listenerv3.Listener, error) { return listenerOf(s, s.Name) }

// RouteOf returns the routes under the service's own name.
func RouteOf(s *isobar.Service) (*routev3.RouteConfiguration, error) { return routeOf(s, s.Name) }

// MetadataOf reads what metadata of another control plane say to filters.
var MetadataOf = metadataOf

// AssignmentFrom reads an encoded assignment of an API version: the inverse of the
// translation. What the version can't express is not there.
func AssignmentFrom(api rpc.APIVersion, encoded []byte) (*endpointv3.ClusterLoadAssignment, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	options := proto.UnmarshalOptions{DiscardUnknown: api != rpc.V2017}
	if err := options.Unmarshal(encoded, m); err != nil {
		return nil, fmt.Errorf("read an assignment of form %s: %w", api, err)
	}
	if api == rpc.V2017 {
		return m, readDrop2017(m.GetPolicy())
	}
	return m, nil
}

// readDrop2017 turns the drop of 2017 into a category.
func readDrop2017(p *endpointv3.ClusterLoadAssignment_Policy) error {
	if p == nil {
		return nil
	}
	rest := p.ProtoReflect().GetUnknown()
	p.ProtoReflect().SetUnknown(nil)
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number != drop2017 || kind != protowire.Fixed64Type {
			m := protowire.ConsumeFieldValue(number, kind, rest[n:])
			if m < 0 {
				return protowire.ParseError(m)
			}
			rest = rest[n+m:]
			continue
		}
		bits, m := protowire.ConsumeFixed64(rest[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		rest = rest[n+m:]
		percent := math.Float64frombits(bits)
		if !(percent >= 0 && percent <= 100) {
			return fmt.Errorf("policy.drop_overload: %v, want 0 to 100 percent", percent)
		}
		p.DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
			Category: isobar.DropCategory,
			DropPercentage: &typev3.FractionalPercent{
				Numerator: uint32(math.Round(percent * 1e4)), Denominator: typev3.FractionalPercent_MILLION,
			},
		}}
	}
	return nil
}
