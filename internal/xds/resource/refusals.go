package resource

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// RefusedByEnvoy says why Envoy takes none of an assignment from EDS of which gRPC
// may make something; what both refuse is an error of [ClusterFrom]. It returns nil
// for what Envoy accepts. Errors wrap ErrRefused and name the field. All of it was
// tried against Envoy. A name that is missing does not count: assignments in files
// often have none.
func RefusedByEnvoy(m *endpointv3.ClusterLoadAssignment) error {
	if err := policyRefusedByEnvoy(m.GetPolicy()); err != nil {
		return err
	}
	for i, l := range m.GetEndpoints() {
		for k, e := range l.GetLbEndpoints() {
			if err := endpointRefusedByEnvoy(e); err != nil {
				return rpc.Within(err, "endpoints[%d].lb_endpoints[%d]", i, k)
			}
		}
	}
	// The rules in the proto files, of which the above names the likely ones better.
	if m.GetClusterName() == "" {
		m = proto.CloneOf(m)
		m.ClusterName = "unnamed"
	}
	if err := m.Validate(); err != nil {
		return rpc.Refusedf("", "%v", err)
	}
	return nil
}

func policyRefusedByEnvoy(p *endpointv3.ClusterLoadAssignment_Policy) error {
	drops := p.GetDropOverloads()
	if n := len(drops); n > 1 {
		return rpc.Refusedf("policy.drop_overloads", "%d categories, and Envoy takes one, even if all others drop nothing", n)
	}
	for i, d := range drops {
		field := fmt.Sprintf("policy.drop_overloads[%d]", i)
		if d.GetCategory() == "" {
			return rpc.Refusedf(field+".category", "empty")
		}
		share := d.GetDropPercentage()
		if whole := denominators[share.GetDenominator()]; share.GetNumerator() > whole {
			return rpc.Refusedf(field+".drop_percentage", "%d of %d is more than all", share.GetNumerator(), whole)
		}
	}
	if d := p.GetEndpointStaleAfter(); d != nil && (!d.IsValid() || d.AsDuration() <= 0) {
		return rpc.Refusedf("policy.endpoint_stale_after", "%v, want more than 0", d.AsDuration())
	}
	return nil
}

func endpointRefusedByEnvoy(e *endpointv3.LbEndpoint) error {
	if e.GetEndpointName() != "" {
		return rpc.Refusedf("endpoint_name", "Envoy knows no named_endpoints: put the endpoint here")
	}
	if err := addressRefusedByEnvoy(e.GetEndpoint().GetAddress()); err != nil {
		return rpc.Within(err, "endpoint.address")
	}
	if check := e.GetEndpoint().GetHealthCheckConfig(); check.GetAddress() != nil {
		if err := addressRefusedByEnvoy(check.GetAddress()); err != nil {
			return rpc.Within(err, "endpoint.health_check_config.address")
		}
	}
	for i, a := range e.GetEndpoint().GetAdditionalAddresses() {
		if err := addressRefusedByEnvoy(a.GetAddress()); err != nil {
			return rpc.Within(err, "endpoint.additional_addresses[%d].address", i)
		}
	}
	return nil
}

func addressRefusedByEnvoy(a *corev3.Address) error {
	switch at := a.GetAddress().(type) {
	case nil:
		return rpc.Refusedf("", "not set")
	case *corev3.Address_SocketAddress:
		return socketRefusedByEnvoy(at.SocketAddress)
	}
	return nil
}

func socketRefusedByEnvoy(s *corev3.SocketAddress) error {
	switch {
	case s.GetResolverName() != "":
		return rpc.Refusedf("socket_address.resolver_name", "%.100q, but clusters of type EDS resolve nothing: leave it out", s.GetResolverName())
	case s.GetNamedPort() != "":
		return rpc.Refusedf("socket_address.named_port", "%.100q, but clusters of type EDS resolve nothing: use port_value", s.GetNamedPort())
	case s.GetPortSpecifier() == nil:
		return rpc.Refusedf("socket_address.port_value", "not set")
	case s.GetPortValue() > 65535:
		return rpc.Refusedf("socket_address.port_value", "%d, want at most 65535", s.GetPortValue())
	}
	if _, err := netip.ParseAddr(s.GetAddress()); err != nil {
		return rpc.Refusedf("socket_address.address", "%.100q is not an IP address, and clusters of type EDS resolve no names", s.GetAddress())
	}
	return nil
}

// RefusedByGRPC says why gRPC takes none of an assignment that Envoy makes
// something of: a locality that is not set, a priority that is missing, or a
// locality or an address that stands there twice. Localities without a weight it
// skips before it looks further. Errors wrap ErrRefused and name the field.
func RefusedByGRPC(m *endpointv3.ClusterLoadAssignment) error {
	localities, priorities := map[placedLocality]bool{}, map[uint32]bool{}
	addresses := map[string]addressPlace{}
	for i, l := range m.GetEndpoints() {
		if l.GetLocality() == nil {
			return rpc.Within(rpc.Refusedf("locality", "not set"), "endpoints[%d]", i)
		}
		if l.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		priorities[l.GetPriority()] = true
		at := placeOf(l)
		if localities[at] {
			return rpc.Within(at.twice(), "endpoints[%d]", i)
		}
		localities[at] = true
		for k, e := range l.GetLbEndpoints() {
			if err := repeatedIn(addresses, addressPlace{locality: i, endpoint: k}, e); err != nil {
				return err
			}
		}
	}
	for p := range uint32(len(priorities)) { //nolint:gosec // as many as entries
		if !priorities[p] {
			return rpc.Refusedf("endpoints", "priority %d is missing: priorities must not have gaps, and localities without a weight do not count", p)
		}
	}
	return nil
}

// repeatedIn refuses an endpoint of which an address, its own or an additional
// one, stands elsewhere; what is new is added to the addresses.
func repeatedIn(addresses map[string]addressPlace, at addressPlace, e *endpointv3.LbEndpoint) error {
	for n := -1; n < len(e.GetEndpoint().GetAdditionalAddresses()); n++ {
		at.additional = n
		address := e.GetEndpoint().GetAddress()
		if n >= 0 {
			address = e.GetEndpoint().GetAdditionalAddresses()[n].GetAddress()
		}
		key := addressKey(address)
		if first, twice := addresses[key]; twice {
			return rpc.Refusedf(at.String(), "%s is already at %s", key, first)
		}
		if key != "" {
			addresses[key] = at
		}
	}
	return nil
}
