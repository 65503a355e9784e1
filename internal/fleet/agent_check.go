package fleet

import (
	"errors"
	"fmt"
	"math"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/isobar-xds/isobar"
)

var errTwice = errors.New("stands twice in one response")

// checkAssignment refuses what Envoy or gRPC refuses; it is written apart from
// the server's own validation, so that each can catch the other's mistakes.
func checkAssignment(cla *endpointv3.ClusterLoadAssignment) error {
	if cla.GetClusterName() == "" {
		return errors.New("no cluster name")
	}
	type place struct {
		priority uint32
		locality isobar.Locality
	}
	places := make(map[place]bool)
	addresses := make(map[string]bool)
	sums := make(map[uint32]uint64)
	highest := uint32(0)
	for _, le := range cla.GetEndpoints() {
		if le.GetLocality() == nil {
			return errors.New("a group has no locality")
		}
		l, p := localityOf(le), le.GetPriority()
		if p > 128 {
			return fmt.Errorf("%s: priority %d > 128", l, p)
		}
		if places[place{p, l}] {
			return fmt.Errorf("%s: twice in priority %d", l, p)
		}
		places[place{p, l}] = true
		if le.GetLoadBalancingWeight().GetValue() == 0 {
			return fmt.Errorf("%s: locality weight 0 or unset", l)
		}
		sums[p] += uint64(le.GetLoadBalancingWeight().GetValue())
		highest = max(highest, p)
		if err := checkHosts(le, addresses); err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
	}
	for p := range highest {
		if sums[p] == 0 {
			return fmt.Errorf("priority %d is missing", p)
		}
	}
	for p, sum := range sums {
		if sum > math.MaxUint32 {
			return fmt.Errorf("priority %d: locality weights sum to %d", p, sum)
		}
	}
	return checkPolicy(cla.GetPolicy())
}

func checkHosts(le *endpointv3.LocalityLbEndpoints, addresses map[string]bool) error {
	var sum uint64
	for _, ep := range le.GetLbEndpoints() {
		addr := addressOf(ep)
		if addr == "" {
			return errors.New("an endpoint has no socket address")
		}
		if addresses[addr] {
			return fmt.Errorf("address %s stands twice", addr)
		}
		addresses[addr] = true
		w := ep.GetLoadBalancingWeight()
		if w != nil && w.GetValue() == 0 {
			return fmt.Errorf("%s: weight 0", addr)
		}
		sum += uint64(hostWeight(ep))
	}
	if sum > math.MaxUint32 {
		return fmt.Errorf("host weights sum to %d", sum)
	}
	return nil
}

func checkPolicy(p *endpointv3.ClusterLoadAssignment_Policy) error {
	if f := p.GetOverprovisioningFactor(); f != nil && f.GetValue() == 0 {
		return errors.New("overprovisioning factor 0")
	}
	if len(p.GetDropOverloads()) > 1 {
		return errors.New("more than one drop category")
	}
	for _, d := range p.GetDropOverloads() {
		if d.GetCategory() == "" {
			return errors.New("a drop category has no name")
		}
		ratio, ok := dropRatio(d)
		if !ok || ratio > 1 {
			return fmt.Errorf("drop category %s: bad fraction", d.GetCategory())
		}
	}
	return nil
}

// dropRatio reads the fraction of a drop category; ok is false for a
// denominator that does not exist.
func dropRatio(d *endpointv3.ClusterLoadAssignment_Policy_DropOverload) (ratio float64, ok bool) {
	n := float64(d.GetDropPercentage().GetNumerator())
	switch d.GetDropPercentage().GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
		return n / 1e2, true
	case typev3.FractionalPercent_TEN_THOUSAND:
		return n / 1e4, true
	case typev3.FractionalPercent_MILLION:
		return n / 1e6, true
	default:
		return 0, false
	}
}

func localityOf(le *endpointv3.LocalityLbEndpoints) isobar.Locality {
	l := le.GetLocality()
	return isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}

func addressOf(ep *endpointv3.LbEndpoint) string {
	sa := ep.GetEndpoint().GetAddress().GetSocketAddress()
	if sa.GetAddress() == "" {
		return ""
	}
	return joinPort(sa.GetAddress(), sa.GetPortValue())
}

// hostWeight is an endpoint's weight; unset is 1.
func hostWeight(ep *endpointv3.LbEndpoint) uint32 {
	return max(1, ep.GetLoadBalancingWeight().GetValue())
}
