package resource

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar/internal/rpc"
)

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
			return rpc.Refusedf(at.String(), "%s stands at %s already", key, first)
		}
		if key != "" {
			addresses[key] = at
		}
	}
	return nil
}
