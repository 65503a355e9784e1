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
