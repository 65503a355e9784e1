package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/solver"
)

// problem is the solver's input for one service.
type problem struct {
	*solver.Service

	solved []isobar.Locality // its sources, in the order of its demand
}

// newProblem makes a problem of the sources that have demand. prices are those of
// the last solution.
func newProblem(r *routes, from sources, maxShed float64, prices []float64, last *Service) problem {
	p := problem{Service: &solver.Service{MaxShed: maxShed, Localities: r.sites.localities()}}
	for i := range from {
		s := &from[i]
		if s.demand == 0 {
			continue
		}
		p.solved = append(p.solved, s.source)
		p.Demand = append(p.Demand, s.demand)
		p.Latency = append(p.Latency, r.latency(s.source))
		if price := r.prices(s.source); price != nil {
			p.Price = append(p.Price, price)
		}
		p.Allowed = append(p.Allowed, r.allowed(s))
	}
	if !slices.ContainsFunc(p.Allowed, func(row []bool) bool { return row != nil }) {
		p.Allowed = nil
	}
	p.warmStart(r.sites, prices, last)
	return p
}

// warmStart hands over what was published, so that ties fall towards it, and the
// last prices: as long as they prove that it still is as good as ties may be,
// nothing is solved.
func (p *problem) warmStart(at sites, prices []float64, last *Service) {
	if last == nil || last.Result == nil {
		return
	}
	if last.CallCosts == nil {
		p.WarmPrices, p.Last = prices, p.lastFlows(at, last)
	}
	were := at.in(last.Result.Sites)
	p.Previous = make([][]float64, len(p.solved))
	for s, source := range p.solved {
		p.Previous[s] = make([]float64, len(at))
		before := last.Result.Source(source)
		if before == nil {
			// A new source has no past. It must not cost the others theirs.
			if near := p.nearest(s); near >= 0 {
				p.Previous[s][near] = p.Demand[s]
			}
			continue
		}
		for l := range at {
			if were[l] >= 0 {
				p.Previous[s][l] = before.Shares[were[l]] * p.Demand[s]
			}
		}
	}
}

// lastFlows returns the flows of the last solution; nil where that was one of other
// sources or sites.
func (p *problem) lastFlows(at sites, last *Service) [][]float64 {
	if last.Solution == nil || last.Solution.Joint || !slices.Equal(p.solved, last.Solved) || !at.same(last.Sites) {
		return nil
	}
	return last.Solution.Flows
}

// nearest is the closest site that a source may use, or -1.
func (p *problem) nearest(s int) int {
	best := -1
	for l := range p.Localities {
		if p.Localities[l].Capacity <= 0 || (p.Allowed != nil && !p.Allowed[s][l]) {
			continue
		}
		if best < 0 || p.Latency[s][l] < p.Latency[s][best] {
			best = l
		}
	}
	return best
}

// forget drops what only the solver reads: it would live one plan longer.
func (p *problem) forget() { p.Last, p.WarmPrices, p.WarmVariability = nil, nil, nil }
