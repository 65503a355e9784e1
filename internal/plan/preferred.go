package plan

import (
	"slices"

	"github.com/isobar-xds/isobar/internal/policy"
	"github.com/isobar-xds/isobar/solver"
)

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
