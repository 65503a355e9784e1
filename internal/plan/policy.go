package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/policy"
	"github.com/isobar-xds/isobar/solver"
)

// policyOf returns the policies that decide in the solver's place.
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

// policyShares computes the shares of each source by the service's policy; nil if the solver
// decides. shed is the fraction of the demand that the solver sheds. Sources without demand count
// with a negligible rate, so a client that begins to send there gets the policy's answer.
func policyShares(of *Service, r *routes, from sources, shed float64) ([][]float64, error) {
	place, decays := policyOf(of.Spec), of.decays()
	if decays {
		place = policy.SprayToWorld
	}
	if place == nil || len(from) == 0 {
		return nil, nil
	}
	p := policy.Problem{Service: solver.Service{Localities: r.sites.localities()}}
	for l := range r.sites {
		s := &r.sites[l]
		p.Localities[l].Capacity = placeable(of.Spec, s)
		if of.Spec.Prefers() {
			p.Preferred = append(p.Preferred, s.Preferred)
		}
		if of.Spec.Policy.FailsOver() && !decays {
			p.Keep = append(p.Keep, shareKept(of.Spec, s.Group))
		}
		p.Places = append(p.Places, s.Group.Locality)
		p.Weights = append(p.Weights, of.Spec.Localities[l].Weight)
	}
	for i := range from {
		s := &from[i]
		p.Sources = append(p.Sources, s.source)
		p.Demand = append(p.Demand, max(minDemand, s.demand*(1-shed)))
		p.Latency = append(p.Latency, r.latency(s.source))
		if prices := r.prices(s.source); prices != nil {
			p.Price = append(p.Price, prices)
		}
		p.Allowed = append(p.Allowed, r.allowed(s))
	}
	flows, err := place(p)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(from))
	for s := range from {
		out[s] = sharesOf(flows[s])
	}
	return out, nil
}

// shareKept is how much of its share a site keeps because of its health: all from
// the failover threshold on, below it in proportion.
func shareKept(spec *isobar.Service, g *isobar.EndpointGroup) float64 {
	usable, all := g.Usable(), len(g.Endpoints)
	if usable == 0 || !spec.Policy.FailsOver() {
		return 1 // it is closed anyway, or the policy has no threshold
	}
	return min(1, float64(usable)/float64(all)/orDefault(spec.FailoverThreshold, isobar.DefaultFailoverThreshold))
}

// placeable is the capacity that a policy sees. Those that do not look at load
// must not wait for demand to tell how much a locality without declared capacity
// may carry.
func placeable(spec *isobar.Service, s *site) float64 {
	if s.Capacity == 0 && spec.Policy.IgnoresLoad() && !s.Unreachable && !s.Drained {
		return float64(s.Group.Usable())
	}
	return s.Capacity
}

// preferring is policy latency where some localities are preferred: least
// latency among these while all fits there. Else they are full, so that it
// matters only who is sent elsewhere: they have no queues to avoid then, and the
// others are farther than any of them. Sources that may use none of them, because
// of isolation, residency or bars, take the others, and are no sign of fullness.
func preferring(p policy.Problem) (policy.Flows, error) {
	only := p.Service
	only.Allowed = make([][]bool, len(p.Demand))
	farthest := 0.0
	for s := range p.Demand {
		only.Allowed[s] = make([]bool, len(p.Places))
		open := false
		for l := range p.Places {
			only.Allowed[s][l] = p.Allowed[s][l] && p.Preferred[l]
			open = open || (only.Allowed[s][l] && p.Localities[l].Capacity > 0)
			farthest = max(farthest, p.Latency[s][l]+priceOf(&p.Service, s, l))
		}
		if !open {
			only.Allowed[s] = p.Allowed[s]
		}
	}
	if flows, fits, err := solveAlone(only, p.Preferred); fits || err != nil {
		return flows, err
	}
	full := p.Service
	full.Localities, full.Price = slices.Clone(p.Localities), make([][]float64, len(p.Demand))
	for l := range full.Localities {
		if p.Preferred[l] {
			full.Localities[l].Servers = 0
		}
	}
	for s := range full.Price {
		full.Price[s] = make([]float64, len(p.Places))
		for l := range p.Places {
			full.Price[s][l] = priceOf(&p.Service, s, l)
			if !p.Preferred[l] {
				full.Price[s][l] += 2*farthest + 1
			}
		}
	}
	flows, _, err := solveAlone(full, p.Preferred)
	return flows, err
}

func priceOf(p *solver.Service, s, l int) float64 {
	if p.Price == nil {
		return 0
	}
	return p.Price[s][l]
}

// solveAlone solves one service; fits says that no ceiling of the preferred
// localities had to be raised.
func solveAlone(s solver.Service, preferred []bool) (flows policy.Flows, fits bool, err error) {
	if !slices.ContainsFunc(s.Localities, func(l solver.Locality) bool { return l.Capacity > 0 }) {
		return make(policy.Flows, len(s.Demand)), true, nil
	}
	out, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		return nil, false, err
	}
	one := &out.Services[0]
	fits = true
	for l, scale := range one.Scale {
		fits = fits && (!preferred[l] || scale <= raisedSlack)
	}
	return one.Flows, fits, nil
}
