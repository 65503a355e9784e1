package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/policy"
	"github.com/isobar-xds/isobar/solver"
)

// policyOf gives the policies that decide in the solver's place.
func policyOf(spec *isobar.Service) policy.Func {
	switch spec.Policy {
	case isobar.PolicyWaterfallByRegion:
		return policy.WaterfallByRegion
	case isobar.PolicyWaterfallByZone:
		return policy.WaterfallByZone
	case isobar.PolicySprayToRegion:
		return policy.SprayToRegion
	case isobar.PolicySprayToWorld:
		return policy.SprayToWorld
	case isobar.PolicyNearest:
		return policy.Nearest
	case isobar.PolicyFixed:
		return policy.Fixed
	default:
		if spec.Prefers() {
			return preferring
		}
		return nil
	}
}

// applyPolicy works out what the service's policy wants of each source, where it
// is not the solver that decides. Sources without demand are placed as a drop in
// the ocean, so that whoever begins to send there is told what the policy says.
func (d *draft) applyPolicy() {
	place := policyOf(d.Spec)
	if d.decays() {
		place = policy.SprayToWorld
	}
	if place == nil || len(d.sources) == 0 {
		return
	}
	shed := 0.0
	if d.Solution != nil {
		shed = shedFraction(d.Problem.Demand, d.Solution.Shed)
	}
	p := policy.Problem{Service: solver.Service{Localities: d.localities()}}
	for l := range d.sites {
		s := &d.sites[l]
		p.Localities[l].Capacity = d.placeable(s)
		if d.Spec.Prefers() {
			p.Preferred = append(p.Preferred, s.Preferred)
		}
		if d.Spec.Policy.FailsOver() && !d.decays() {
			p.Keep = append(p.Keep, d.keeps(s.Group))
		}
		p.Places = append(p.Places, s.Group.Locality)
		p.Weights = append(p.Weights, d.Spec.Localities[l].Weight)
	}
	for i := range d.sources {
		s := &d.sources[i]
		p.Sources = append(p.Sources, s.source)
		p.Demand = append(p.Demand, max(minDemand, s.demand*(1-shed)))
		p.Latency = append(p.Latency, d.distances(s.source))
		if prices := d.prices(s.source); prices != nil {
			p.Price = append(p.Price, prices)
		}
		p.Allowed = append(p.Allowed, d.allowed(s))
	}
	flows, err := place(p)
	if err != nil {
		d.Hold = "the policy refused the problem: " + err.Error()
		return
	}
	d.policy = make([][]float64, len(d.sources))
	for s := range d.sources {
		d.policy[s] = sharesOf(flows[s])
	}
}

// keeps is how much of its share a site keeps because of its health: all from
// the failover threshold on, below it in proportion.
func (s *Service) keeps(g *isobar.EndpointGroup) float64 {
	usable, all := g.Usable(), len(g.Endpoints)
	if usable == 0 || !s.Spec.Policy.FailsOver() {
		return 1 // it is closed anyway, or the policy has no threshold
	}
	return min(1, float64(usable)/float64(all)/orDefault(s.Spec.FailoverThreshold, isobar.DefaultFailoverThreshold))
}

// placeable is the capacity that a policy sees. Those that do not look at load
// must not wait for demand to tell how much a locality without declared capacity
// may carry.
func (d *draft) placeable(s *site) float64 {
	if s.Capacity == 0 && d.Spec.Policy.IgnoresLoad() && !s.Unreachable && !s.Drained {
		return float64(s.Group.Usable())
	}
	return s.Capacity
}

// sharesOf gives flows as fractions of their sum; nil when there is none.
func sharesOf(flows []float64) []float64 {
	sum := 0.0
	for _, f := range flows {
		sum += f
	}
	if sum <= 0 {
		return nil
	}
	out := make([]float64, len(flows))
	for l, f := range flows {
		out[l] = f / sum
	}
	return out
}
