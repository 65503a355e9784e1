package resource

import (
	"fmt"
	"math"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// defaultOverprovisioning is what data planes assume when it is not set, in
// percent.
const defaultOverprovisioning = 140

// dropUnits is the finest drop that is sent: 1/10,000 of the requests.
const dropUnits = 10_000

// maxFineDrop is the most that is sent in those units, and whole percents
// above: grpc-go before 1.85 multiplies the numerator by a million in 32
// bits, so that it would drop 7% when told 49.87%.
const maxFineDrop = math.MaxUint32 / 1_000_000

// EmptyAssignment is the assignment that takes all endpoints from a client.
// Envoy ignores removals of assignments, so this is how a service ends.
func EmptyAssignment(service string) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: service}
}

// Assignment converts an assignment and checks the result against the rules of
// all clients. Errors wrap ErrRefused and name the field.
func Assignment(a *isobar.Assignment) (*endpointv3.ClusterLoadAssignment, error) {
	out := EmptyAssignment(a.Service)
	shared := metadataCache{}
	for priority, localities := range a.Priorities {
		if len(localities) == 0 {
			return nil, rpc.Refusedf(fmt.Sprintf("endpoints of priority %d", priority), "missing: priorities must not have gaps")
		}
		for i := range localities {
			l, err := localityEndpoints(&localities[i], priority, shared)
			if err != nil {
				return nil, err
			}
			out.Endpoints = append(out.Endpoints, l)
		}
	}
	policy, err := assignmentPolicy(a)
	if err != nil {
		return nil, err
	}
	out.Policy = policy
	markEndpoints(out)
	if err := CheckAssignment(out, a.Service); err != nil {
		return nil, err
	}
	return out, nil
}

func localityEndpoints(l *isobar.LocalityWeight, priority int, shared metadataCache) (*endpointv3.LocalityLbEndpoints, error) {
	if l.EndpointGroup == nil {
		return nil, rpc.Refusedf(fmt.Sprintf("endpoints of priority %d", priority), "a locality without its endpoints")
	}
	metadata, err := shared.of(l.Metadata)
	if err != nil {
		return nil, err
	}
	out := &endpointv3.LocalityLbEndpoints{
		Metadata: metadata,
		// Always set: gRPC rejects an assignment with a locality left out, and
		// takes an empty one.
		Locality: &corev3.Locality{
			Region:  l.Locality.Region,
			Zone:    l.Locality.Zone,
			SubZone: l.Locality.SubZone,
		},
		LoadBalancingWeight: wrapperspb.UInt32(l.Weight),
		Priority:            uint32(priority), //nolint:gosec // an index; CheckAssignment bounds it
		LbEndpoints:         make([]*endpointv3.LbEndpoint, len(l.Endpoints)),
	}
	for i := range l.Endpoints {
		e, err := lbEndpoint(&l.Endpoints[i], shared)
		if err != nil {
			return nil, err
		}
		out.LbEndpoints[i] = e
	}
	return out, nil
}

func lbEndpoint(e *isobar.WeightedEndpoint, shared metadataCache) (*endpointv3.LbEndpoint, error) {
	at, err := netip.ParseAddrPort(e.Address)
	if err != nil || at.Port() == 0 {
		return nil, rpc.Refusedf("address", "%.100q, want an IP address and a port", e.Address)
	}
	out := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: SocketAddressOf(at.Addr().String(), at.Port()),
		}},
		HealthStatus:        corev3.HealthStatus(e.Health), // the values are the same
		LoadBalancingWeight: wrapperspb.UInt32(e.Weight),
	}
	if e.Config != nil {
		if err := addDetails(out, e.Config, at.Port(), shared); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assignmentPolicy returns nil where the defaults say the same.
func assignmentPolicy(a *isobar.Assignment) (*endpointv3.ClusterLoadAssignment_Policy, error) {
	drop, err := dropOverload(a.Drop)
	if err != nil {
		return nil, err
	}
	plain := a.OverprovisioningFactor == defaultOverprovisioning || a.OverprovisioningFactor == 0
	if drop == nil && plain && !a.WeightedPriorityHealth && a.EndpointStaleAfter == 0 {
		return nil, nil //nolint:nilnil // no policy is a policy: the defaults
	}
	p := &endpointv3.ClusterLoadAssignment_Policy{WeightedPriorityHealth: a.WeightedPriorityHealth}
	if a.EndpointStaleAfter != 0 {
		p.EndpointStaleAfter = durationpb.New(a.EndpointStaleAfter)
	}
	if drop != nil {
		p.DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{drop}
	}
	if !plain {
		p.OverprovisioningFactor = wrapperspb.UInt32(a.OverprovisioningFactor)
	}
	return p, nil
}

// dropOverload returns the one drop category; nil when nothing is dropped.
func dropOverload(fraction float64) (*endpointv3.ClusterLoadAssignment_Policy_DropOverload, error) {
	if math.IsNaN(fraction) || fraction < 0 || fraction > 1 {
		return nil, rpc.Refusedf("policy.drop_overloads", "drop of %v, want 0 to 1", fraction)
	}
	units := uint32(math.Round(fraction * dropUnits))
	if units == 0 {
		return nil, nil //nolint:nilnil // too little to be expressed
	}
	p := &typev3.FractionalPercent{Numerator: units, Denominator: typev3.FractionalPercent_TEN_THOUSAND}
	if units%100 == 0 || units > maxFineDrop {
		p = &typev3.FractionalPercent{Numerator: units / 100, Denominator: typev3.FractionalPercent_HUNDRED}
	}
	return &endpointv3.ClusterLoadAssignment_Policy_DropOverload{Category: isobar.DropCategory, DropPercentage: p}, nil
}
