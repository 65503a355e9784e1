package solver

import "math"

// reuse answers with the previous flows, in shares of today's demand, if the
// previous prices still prove them to be tied with the optimum: then a full
// solution would end there too (see breakTies), and all that is needed is the
// proof. The prices stay as they are until they no longer prove enough.
func (in *instance) reuse() (ServiceSolution, float64, bool) {
	if !in.warm || in.service.Previous == nil {
		return ServiceSolution{}, 0, false
	}
	prog := in.whole()
	flow := in.byPrevious(part{sources: indices(in.sources)}, indices(in.localities), make([]float64, len(in.cost)))
	if !prog.keeps(flow) || !in.tied(prog, flow) {
		return ServiceSolution{}, 0, false
	}
	sol, served := in.answer(&answer{flow: flow, prices: append([]float64(nil), in.service.WarmPrices...)})
	sol.LowerBound = math.Min(sol.Objective, in.bound(sol.Prices))
	sol.Gap, sol.ExcessMS = quality(sol.Objective, sol.LowerBound, served)
	return sol, served, true
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

// tied tells whether the warm prices prove that flows cost no more than ties may.
func (in *instance) tied(prog *program, flow []float64) bool {
	total := 0.0
	for _, d := range in.served {
		total += d
	}
	value, bound := prog.value(flow), in.bound(in.service.WarmPrices)
	return value <= bound+math.Min(tieLatency*total, tieShare*bound)
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
