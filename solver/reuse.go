package solver

import (
	"math"
	"slices"
)

// reuse answers with the shares of an earlier answer if the last prices prove
// them to be tied with the optimum of today's demand: those that are in force,
// where a full solution would end too (see breakTies), else those of the last
// solution. The prices stay as they are until they no longer prove enough.
func (in *instance) reuse() (ServiceSolution, float64, bool) {
	if !in.warm || (in.service.Previous == nil && in.service.Last == nil) {
		return ServiceSolution{}, 0, false
	}
	prog, all := in.whole(), part{sources: indices(in.sources)}
	bound, ok := in.warmBound()
	if !ok {
		return ServiceSolution{}, 0, false
	}
	prog.swing = in.swingsOf(all.sources)
	for _, earlier := range [][][]float64{in.service.Previous, in.service.Last} {
		if earlier == nil {
			continue
		}
		flow := in.byShares(earlier, all, indices(in.localities), make([]float64, len(in.cost)))
		if !prog.keeps(flow) || !in.tied(prog.value(flow), bound) {
			continue
		}
		sol, served := in.answer(&answer{flow: flow, prices: slices.Clone(in.service.WarmPrices)})
		if prog.swing != nil {
			sol.Swing = in.service.WarmSwing
		}
		sol.LowerBound = lower(sol.Objective, bound)
		sol.Gap, sol.ExcessMS = quality(sol.Objective, sol.LowerBound, served)
		return sol, served, true
	}
	return ServiceSolution{}, 0, false
}

// warmBound is what the last prices prove today; not where there are none of a swing
// that there is.
func (in *instance) warmBound() (bound float64, ok bool) {
	if !in.swings() {
		return in.bound(in.service.WarmPrices), true
	}
	if !in.service.WarmSwing.fits(in.sources, in.localities) {
		return 0, false
	}
	return in.swungBound(in.service.WarmPrices, in.service.WarmSwing), true
}

// whole is the service as one program, with all its localities.
func (in *instance) whole() *program {
	prog := &program{
		sources: in.sources, localities: in.localities, demand: in.served, cost: in.cost, open: in.open,
		curves: in.curves, room: make([]float64, in.localities),
	}
	for l := range in.curves {
		prog.room[l] = in.curves[l].room(1)
	}
	return prog
}

// tied tells whether flows of a cost are proven to cost no more than ties may.
func (in *instance) tied(value, bound float64) bool {
	total := 0.0
	for _, d := range in.served {
		total += d
	}
	return value <= bound+in.tieBudget(total, bound)
}

// bound is Bound with the ceilings, and less the demand, of the instance.
func (in *instance) bound(prices []float64) float64 {
	total := 0.0
	for s, d := range in.served {
		best := math.Inf(1)
		for l := range in.localities {
			if a := s*in.localities + l; in.open[a] {
				best = math.Min(best, in.cost[a]+prices[l])
			}
		}
		if d > 0 {
			total += d * best
		}
	}
	for l := range in.curves {
		if c := &in.curves[l]; c.capacity > 0 {
			total -= c.gain(prices[l], c.room(in.scale[l]))
		}
	}
	return total
}
