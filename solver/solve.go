package solver

import (
	"fmt"
	"math"
	"slices"
)

// Solve minimises the latency of all requests (see [Objective]) under the
// ceilings, and certifies the answer with a lower bound (see [TotalBound]). The
// same problem gives the same bytes. Errors wrap [ErrInvalid], and [ErrCycle] if
// that is why, and name the place. Demand that does not fit is no error but shed,
// served above the ceilings or reported as unreachable.
func Solve(p Problem) (Solution, error) {
	graph, err := p.checked()
	if err != nil {
		return Solution{}, fmt.Errorf("solve: %w", err)
	}
	out := Solution{Services: make([]ServiceSolution, len(p.Services))}
	var method interior
	served := 0.0
	for _, group := range graph.groups() {
		if len(group) > 1 {
			sum, rate := p.solveGroup(graph, group, out.Services)
			out.Objective += sum.Objective
			out.LowerBound += sum.LowerBound
			served += rate
			continue
		}
		i := group[0]
		sol, rate := solveService(&p.Services[i], &method)
		out.Services[i] = sol
		out.Objective += sol.Objective
		out.LowerBound += sol.LowerBound
		served += rate
	}
	out.Gap, out.ExcessMS = quality(out.Objective, out.LowerBound, served)
	return out, nil
}

// lower is what a bound proves: no flow costs less than nothing, and rounding may
// put the bound of an exact optimum a hair above it. So the gap is within [0, 1].
func lower(objective, bound float64) float64 {
	return min(objective, max(0, bound))
}

func quality(objective, bound, served float64) (gap, excess float64) {
	if objective <= bound {
		return 0, 0
	}
	if objective > 0 {
		gap = (objective - bound) / objective
	}
	if served > 0 {
		excess = (objective - bound) / served
	}
	return gap, excess
}

// solveService solves one service and returns the demand that it serves too.
func solveService(s *Service, method *interior) (ServiceSolution, float64) {
	in := newInstance(s)
	if sol, served, ok := in.reuse(); ok {
		return sol, served
	}
	in.shedOverflow()
	parts := in.splitTight(in.partition(in.served, in.ceilings()))
	if len(parts) == 1 && !parts[0].saturated && in.variable() && in.fits() {
		whole := newComponentProgram(in, parts[0])
		return whole.solveVariable(method)
	}
	out := answer{
		flow:   make([]float64, in.sources*in.localities),
		prices: make([]float64, in.localities),
		worth:  make([]float64, in.sources),
	}
	for _, p := range parts {
		if p.saturated && p.factor > 1+fullSlack {
			for _, l := range p.localities {
				in.scale[l] = p.factor * (1 + raiseSlack)
			}
		}
	}
	// From the part with the most freedom to the fullest one: prices of a
	// fuller part must keep out the sources of those after it.
	for i, p := range slices.Backward(parts) {
		alone := newComponentProgram(in, p)
		alone.solve(method, &out)
		if p.saturated {
			in.raisePrices(p, parts[i+1:], &out)
		}
	}
	in.closedPrices(&out)
	return in.finish(&out)
}

// freeShare is the share of its headroom below which a locality isn't full.
const freeShare = 1 - 1e-6

// answer collects what the parts give.
type answer struct {
	flow       []float64 // per arc
	prices     []float64 // per locality
	worth      []float64 // price of a source's demand, min over l of cost + price
	iterations int
}

func (in *instance) finish(out *answer) (ServiceSolution, float64) {
	sol, served := in.answer(out)
	in.certify(&sol)
	sol.Gap, sol.ExcessMS = quality(sol.Objective, sol.LowerBound, served)
	return sol, served
}

// answer is the solution without its certificate, and the demand that it serves.
func (in *instance) answer(out *answer) (ServiceSolution, float64) {
	sol := ServiceSolution{
		Flows: make([][]float64, in.sources), Prices: out.prices, Scale: in.scale,
		Shed: in.shed, Unreachable: in.unreachable, Iterations: out.iterations,
	}
	served := 0.0
	for s := range in.sources {
		sol.Flows[s] = out.flow[s*in.localities : (s+1)*in.localities : (s+1)*in.localities]
		served += in.served[s]
	}
	sol.total(in)
	sol.Objective = Objective(*in.service, sol.Flows)
	return sol, served
}

// total sums flows up to what depends on them.
func (sol *ServiceSolution) total(in *instance) {
	sol.Load, sol.Utilization = make([]float64, in.localities), make([]float64, in.localities)
	sol.CeilingScale = 1
	for l := range in.localities {
		for s := range sol.Flows {
			sol.Load[l] += sol.Flows[s][l]
		}
		if c := &in.curves[l]; c.capacity > 0 {
			sol.Utilization[l] = (sol.Load[l] + c.unmanaged) / c.capacity
		}
		sol.CeilingScale = math.Max(sol.CeilingScale, in.scale[l])
	}
}

// certify bounds the objective, with the slopes at the final loads as prices
// wherever the ceiling does not bind, or with the method's prices if those
// prove more.
func (in *instance) certify(sol *ServiceSolution) {
	slopes := slices.Clone(sol.Prices)
	for l := range in.localities {
		c := &in.curves[l]
		if headroom := c.headroom(in.scale[l]); sol.Load[l] < freeShare*headroom {
			slopes[l] = c.slope(sol.Load[l])
		}
	}
	bound := in.bound(slopes)
	if sol.Objective-bound > relativeGap*sol.Objective {
		if other := in.bound(sol.Prices); other > bound {
			bound, slopes = other, sol.Prices
		}
	}
	sol.Prices = slopes
	sol.LowerBound = lower(sol.Objective, bound)
}

// reuse answers with the shares of an earlier answer if the last prices prove
// them to be tied with the optimum of today's demand: those that are in force,
// where a full solution would end too (see breakTies), else those of the last
// solution. The prices stay as they are until they no longer prove enough.
func (in *instance) reuse() (ServiceSolution, float64, bool) {
	if !in.warm || (in.service.Previous == nil && in.service.Last == nil) {
		return ServiceSolution{}, 0, false
	}
	prog := in.whole()
	all := componentProgram{in: in, component: component{sources: indices(in.sources)}, localities: indices(in.localities), prog: prog}
	bound, ok := in.warmBound()
	if !ok {
		return ServiceSolution{}, 0, false
	}
	prog.variability = in.variabilityOf(all.component.sources)
	for _, earlier := range [][][]float64{in.service.Previous, in.service.Last} {
		if earlier == nil {
			continue
		}
		flow := all.byShares(earlier, make([]float64, len(in.cost)))
		if !prog.keeps(flow) || !in.tied(prog.value(flow), bound) {
			continue
		}
		sol, served := in.answer(&answer{flow: flow, prices: slices.Clone(in.service.WarmPrices)})
		if prog.variability != nil {
			sol.Variability = in.service.WarmVariability
		}
		sol.LowerBound = lower(sol.Objective, bound)
		sol.Gap, sol.ExcessMS = quality(sol.Objective, sol.LowerBound, served)
		return sol, served, true
	}
	return ServiceSolution{}, 0, false
}

// warmBound is what the last prices prove today; not where there are none for variable demand
// that there is.
func (in *instance) warmBound() (bound float64, ok bool) {
	if !in.variable() {
		return in.bound(in.service.WarmPrices), true
	}
	if !in.service.WarmVariability.fits(in.sources, in.localities) {
		return 0, false
	}
	return in.variabilityBound(in.service.WarmPrices, in.service.WarmVariability), true
}

// whole is the service as one program, with all its localities.
func (in *instance) whole() *program {
	prog := &program{
		sources: in.sources, localities: in.localities, demand: in.served, cost: in.cost, open: in.open,
		curves: in.curves, headroom: make([]float64, in.localities),
	}
	for l := range in.curves {
		prog.headroom[l] = in.curves[l].headroom(1)
	}
	return prog
}

// tied reports whether flows of a cost are proven to cost no more than ties may.
func (in *instance) tied(value, bound float64) bool {
	total := 0.0
	for _, d := range in.served {
		total += d
	}
	return value <= bound+in.service.tieBudget(total, bound)
}

// bound is [TotalBound] of one service of steady demand, with the ceilings, and less the
// demand, of the instance.
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
			total -= c.gain(prices[l], c.headroom(in.scale[l]))
		}
	}
	return total
}
