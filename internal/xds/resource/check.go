package resource

import (
	"fmt"
	"math"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// maxPriority is the highest priority that Envoy takes.
const maxPriority = 128

// CheckAssignment holds an assignment against the union of the rules of Envoy
// and gRPC: what passes is accepted by both. The name is what clients
// subscribe to. Errors wrap ErrRefused and name the field.
func CheckAssignment(m *endpointv3.ClusterLoadAssignment, name string) error {
	if m.GetClusterName() == "" {
		return rpc.Refusedf("cluster_name", "empty")
	}
	if m.GetClusterName() != name {
		return rpc.Refusedf("cluster_name", "%.200q, but %.200q is what is subscribed", m.GetClusterName(), name)
	}
	if err := checkPolicy(m.GetPolicy()); err != nil {
		return err
	}
	c := assignmentCheck{
		localities: make(map[placedLocality]bool, len(m.GetEndpoints())),
		weights:    map[uint32]uint64{},
		addresses:  map[netip.AddrPort]addressPlace{},
		checked:    map[*corev3.Metadata]bool{},
	}
	for i, l := range m.GetEndpoints() {
		c.at.locality = i
		if err := c.locality(l); err != nil {
			return rpc.Within(err, "endpoints[%d]", i)
		}
	}
	for p := range uint32(len(c.weights)) { //nolint:gosec // at most 129
		if _, ok := c.weights[p]; !ok {
			return rpc.Refusedf("endpoints", "priority %d is missing: priorities must not have gaps", p)
		}
	}
	return nil
}

type placedLocality struct {
	priority              uint32
	region, zone, subZone string
}

func placeOf(l *endpointv3.LocalityLbEndpoints) placedLocality {
	id := l.GetLocality()
	return placedLocality{l.GetPriority(), id.GetRegion(), id.GetZone(), id.GetSubZone()}
}

func (p placedLocality) twice() error {
	return rpc.Refusedf("locality", "%s/%s/%s is in priority %d twice", p.region, p.zone, p.subZone, p.priority)
}

// assignmentCheck gathers what has to be unique or bounded over a message.
type assignmentCheck struct {
	localities map[placedLocality]bool
	weights    map[uint32]uint64 // sum of locality weights by priority
	addresses  map[netip.AddrPort]addressPlace
	at         addressPlace // what is checked now
	checked    map[*corev3.Metadata]bool
}

// addressPlace says where in a message an address stands.
type addressPlace struct {
	locality, endpoint int
	additional         int // -1: it is the endpoint's own address
}

// String names the field as in the proto file.
func (p addressPlace) String() string {
	field := fmt.Sprintf("endpoints[%d].lb_endpoints[%d].endpoint.", p.locality, p.endpoint)
	if p.additional < 0 {
		return field + "address"
	}
	return fmt.Sprintf("%sadditional_addresses[%d]", field, p.additional)
}

// locality checks one locality. Here and beneath, fields are named from where
// the check is, and whole names are made of them when something is wrong: there
// are thousands of endpoints, and nearly always all is well.
func (c *assignmentCheck) locality(l *endpointv3.LocalityLbEndpoints) error {
	if l.GetLocality() == nil {
		return rpc.Refusedf("locality", "not set")
	}
	priority := l.GetPriority()
	if priority > maxPriority {
		return rpc.Refusedf("priority", "%d, want at most %d", priority, maxPriority)
	}
	at := placeOf(l)
	if c.localities[at] {
		return at.twice()
	}
	c.localities[at] = true
	weight := l.GetLoadBalancingWeight().GetValue()
	if weight == 0 {
		return rpc.Refusedf("load_balancing_weight", "0 or not set, want at least 1")
	}
	c.weights[priority] += uint64(weight)
	if c.weights[priority] > math.MaxUint32 {
		return rpc.Refusedf("load_balancing_weight", "the weights of priority %d sum to 2^32 or more", priority)
	}
	if l.GetLbConfig() != nil || l.GetProximity() != nil {
		return rpc.Refusedf("", "lb_config and proximity are not understood by all clients")
	}
	if err := c.metadata(l.GetMetadata()); err != nil {
		return err
	}
	return c.endpoints(l.GetLbEndpoints())
}

func (c *assignmentCheck) endpoints(endpoints []*endpointv3.LbEndpoint) error {
	var sum uint64
	for i, e := range endpoints {
		weight := uint32(1) // what clients take when it is not set
		if w := e.GetLoadBalancingWeight(); w != nil {
			weight = w.GetValue()
		}
		sum += uint64(weight)
		if sum > math.MaxUint32 {
			return rpc.Refusedf(fmt.Sprintf("lb_endpoints[%d].load_balancing_weight", i), "the weights of the locality sum to 2^32 or more")
		}
		c.at.endpoint = i
		if err := c.endpoint(e, weight); err != nil {
			return rpc.Within(err, "lb_endpoints[%d]", i)
		}
	}
	return nil
}

func (c *assignmentCheck) endpoint(e *endpointv3.LbEndpoint, weight uint32) error {
	if weight == 0 {
		return rpc.Refusedf("load_balancing_weight", "0, want at least 1")
	}
	if _, known := corev3.HealthStatus_name[int32(e.GetHealthStatus())]; !known {
		return rpc.Refusedf("health_status", "%d is no health status", e.GetHealthStatus())
	}
	c.at.additional = -1
	if err := c.address(e.GetEndpoint().GetAddress()); err != nil {
		return rpc.Within(err, "endpoint.address")
	}
	return c.details(e)
}

// address checks that an address can be taken and stands nowhere else.
func (c *assignmentCheck) address(a *corev3.Address) error {
	key, err := sentAddress(a)
	if err != nil {
		return err
	}
	if first, twice := c.addresses[key]; twice {
		return rpc.Refusedf("", "%s is already at %s", key, first)
	}
	c.addresses[key] = c.at
	return nil
}

// sentAddress returns an address that all clients take as IP:port.
func sentAddress(a *corev3.Address) (netip.AddrPort, error) {
	s := a.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil || ip.Zone() != "" {
		return netip.AddrPort{}, rpc.Refusedf("", "%.100q is not an IP address without zone", s.GetAddress())
	}
	port := s.GetPortValue()
	if port == 0 || port > math.MaxUint16 {
		return netip.AddrPort{}, rpc.Refusedf("", "port %d, want 1 to %d", port, math.MaxUint16)
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

func checkPolicy(p *endpointv3.ClusterLoadAssignment_Policy) error {
	if f := p.GetOverprovisioningFactor(); f != nil && f.GetValue() == 0 {
		return rpc.Refusedf("policy.overprovisioning_factor", "0, want at least 1")
	}
	if d := p.GetEndpointStaleAfter(); d != nil && (!d.IsValid() || d.AsDuration() <= 0) {
		return rpc.Refusedf("policy.endpoint_stale_after", "%v, want more than 0", d.AsDuration())
	}
	if n := len(p.GetDropOverloads()); n > 1 {
		return rpc.Refusedf("policy.drop_overloads", "%d categories, want at most 1", n)
	}
	for _, d := range p.GetDropOverloads() {
		if d.GetCategory() == "" {
			return rpc.Refusedf("policy.drop_overloads[0].category", "empty")
		}
		whole, ok := denominators[d.GetDropPercentage().GetDenominator()]
		if !ok {
			return rpc.Refusedf("policy.drop_overloads[0].drop_percentage", "unknown denominator %d", d.GetDropPercentage().GetDenominator())
		}
		if n := d.GetDropPercentage().GetNumerator(); n > whole {
			return rpc.Refusedf("policy.drop_overloads[0].drop_percentage", "%d of %d is more than all", n, whole)
		}
	}
	return nil
}

var denominators = map[typev3.FractionalPercent_DenominatorType]uint32{
	typev3.FractionalPercent_HUNDRED:      100,
	typev3.FractionalPercent_TEN_THOUSAND: 10_000,
	typev3.FractionalPercent_MILLION:      1_000_000,
}
