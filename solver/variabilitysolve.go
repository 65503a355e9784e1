package solver

import (
	"math"
	"slices"
)

const (
	// variabilityRounds bounds how often a program is approximated, and variabilityGap is
	// where that ends: the gap as a fraction of the cost.
	variabilityRounds = 60
	variabilityGap    = 5e-5
	// sharperGap is the gap from which on the bound is made sharper.
	sharperGap = 2e-3
	// variabilitySteps is how exactly the way to the next answer is divided, in bits.
	variabilitySteps = 20
	// farSteps is how far beyond an answer the way on may lead.
	farSteps = 16
	// leastBend is the load, as a fraction of the headroom, below which the curvature
	// of a curve is not looked at: it may be infinite at 0.
	leastBend = 0.01
)

// solveVariable solves a service whose demand varies, and fits. Its cost is convex,
// but that of a locality depends on whose load it is. So it is approximated again
// and again around the best flows so far: what the deviations D add to the slope of
// a locality's own cost becomes part of the way there, and the derivative of
//
//	q/2 x_sl^2,  q = variability_s^2 dCost/dD / D
//
// is exactly what D adds for source s. Where that leads nowhere any more the
// conditions of the optimum hold.
func (pp *componentProgram) solveVariable(method *interior) (ServiceSolution, float64) {
	in, prog := pp.in, pp.prog
	prog.variability = in.variabilityOf(pp.component.sources)
	out := answer{prices: make([]float64, in.localities), worth: make([]float64, in.sources)}
	var target []float64
	if in.service.Previous != nil {
		target = pp.byShares(in.service.Previous, make([]float64, len(prog.cost)))
	}
	flow := target
	if target == nil || !prog.keeps(target) {
		best := prog.solve(method)
		flow, out.iterations = best.flow, best.iterations
	}
	total, bound := 0.0, 0.0
	for _, d := range prog.demand {
		total += d
	}
	var duals *VariabilityPrices
	value := prog.value(flow)
	var before []float64
	enough := tieLatency * total
	for range variabilityRounds {
		model := prog.around(flow)
		best := model.solve(method)
		out.iterations += best.iterations
		stuck := true
		prove := func(at optimum) {
			prices, around := pp.variabilityPrices(at)
			if b := in.variabilityBound(prices, around); duals == nil || b > bound {
				bound, duals, out.prices, stuck = b, around, prices, false
			}
		}
		prove(best)
		next := prog.along(flow, best.flow, 1)
		if before != nil {
			next = prog.along(before, next, farSteps)
		}
		before = flow
		if better := prog.value(next); better < value {
			flow, value, stuck = next, better, false
		}
		// Near a capacity prices differ by much between flows that differ by little.
		prove(optimum{flow: flow, prices: best.prices})
		if stuck || value-bound <= math.Min(variabilityGap*value, enough) {
			break
		}
	}
	if duals != nil && value-bound > math.Max(sharperGap*value, enough) {
		bound, out.prices, duals = in.sharper(bound, out.prices, duals, pp.flowsOf(flow))
	}
	flow = prog.nearTo(target, flow, value, in.service.tieBudget(total, value))
	out.flow = pp.flowsOf(flow)
	sol, served := in.answer(&out)
	sol.Variability = duals
	sol.LowerBound = lower(sol.Objective, bound)
	sol.Gap, sol.ExcessMS = quality(sol.Objective, sol.LowerBound, served)
	return sol, served
}

// around approximates the cost of variability around flows.
func (p *program) around(flow []float64) *program {
	model := *p
	model.variability, model.curves = nil, slices.Clone(p.curves)
	model.spring, model.target = make([]float64, len(flow)), make([]float64, len(flow))
	deviation, load := p.deviations(flow), p.loads(flow)
	for l := range model.curves {
		c := &model.curves[l]
		c.deviation = deviation[l]
		_, bend := c.slopes(math.Max(load[l], leastBend*p.headroom[l]))
		ratio := 1.0 // of dCost/dD / D to the spring
		if deviation[l] > 1e-6*load[l] {
			high, low := p.curves[l].halves(load[l], deviation[l])
			mean := (high - low) / 2 / deviation[l]
			if bend = math.Max(bend, mean); bend > 0 {
				ratio = mean / bend
			}
		}
		for s, variability := range p.variability {
			a := s*p.localities + l
			model.spring[a] = variability * variability * bend
			model.target[a] = flow[a] * (1 - ratio)
		}
	}
	return &model
}

func (p *program) loads(flow []float64) []float64 {
	out := make([]float64, p.localities)
	for a, x := range flow {
		out[a%p.localities] += x
	}
	return out
}

// along goes from flows in the direction of others, and beyond them up to a
// multiple of the way, to where the cost is least.
func (p *program) along(from, to []float64, most float64) []float64 {
	at := make([]float64, len(from))
	move := func(theta float64) float64 {
		for a, x := range from {
			at[a] = math.Max(0, x+theta*(to[a]-x))
		}
		return p.value(at)
	}
	// The cost is convex: a golden section finds its least.
	const ratio = 0.6180339887498949
	lo, hi := 0.0, p.longest(from, to, most)
	end := hi
	a, b := hi-ratio*(hi-lo), lo+ratio*(hi-lo)
	fa, fb := move(a), move(b)
	for range variabilitySteps {
		if fa <= fb {
			hi, b, fb = b, a, fa
			a = hi - ratio*(hi-lo)
			fa = move(a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + ratio*(hi-lo)
			fb = move(b)
		}
	}
	best := (lo + hi) / 2
	if hi == end && move(end) <= move(best) {
		best = end
	}
	move(best)
	p.complete(at)
	return at
}

// complete places all demand: what rounding leaves of it would grow from one way
// beyond an answer to the next.
func (p *program) complete(flow []float64) {
	for s, d := range p.demand {
		row := flow[s*p.localities : (s+1)*p.localities]
		sum := 0.0
		for _, x := range row {
			sum += x
		}
		for l := range row {
			row[l] *= d / sum
		}
	}
}

// longest is how far flows can go in the direction of others that keep all
// constraints, in multiples of the way there: 1 at least.
func (p *program) longest(from, to []float64, most float64) float64 {
	change := make([]float64, len(from))
	for a, x := range from {
		change[a] = to[a] - x
		if change[a] < 0 {
			most = math.Min(most, math.Max(1, -x/change[a]))
		}
	}
	load, grows := p.loads(from), p.loads(change)
	for l, c := range grows {
		if c > 0 {
			most = math.Min(most, math.Max(1, (p.headroom[l]-load[l])/c))
		}
	}
	return most
}

// nearTo takes back what the step from the target to the optimum costs less than
// ties may.
func (p *program) nearTo(target, flow []float64, value, budget float64) []float64 {
	if target == nil {
		return flow
	}
	if p.keeps(target) && p.value(target) <= value+budget {
		return target
	}
	return p.extend(flow, target, value+tieAim*budget)
}

// flowsOf are the flows of a part as those of all sources and localities.
func (pp *componentProgram) flowsOf(flow []float64) []float64 {
	out := make([]float64, pp.in.sources*pp.in.localities)
	for i, s := range pp.component.sources {
		for j, l := range pp.localities {
			out[s*pp.in.localities+l] = flow[i*len(pp.localities)+j]
		}
	}
	return out
}
