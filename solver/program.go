package solver

import (
	"math"
	"slices"
)

// program is one convex transportation problem without overflow left in it:
//
//	minimise  sum_a cost_a x_a + 1/2 sum_a spring_a (x_a - target_a)^2 + sum_l f_l(y_l)
//	subject to  sum_l x_sl = demand_s,  x >= 0,  y_l = sum_s x_sl <= room_l  (= room_l if forced)
//
// Arcs a = (s, l) are stored row by row: a = s*localities + l.
type program struct {
	sources, localities int
	demand, headroom    []float64
	cost                []float64
	open                []bool
	curves              []curve
	share               []float64 // barrier weight of a locality; mean about 1
	forced              bool      // y = headroom in every locality

	spring      []float64 // per arc; nil = no quadratic term
	target      []float64 // per arc
	variability []float64 // per source; nil = 0. The minimisation ignores it: see meanValue

	warmPrices []float64 // nil = cold start
}

// value is the cost of flows in the program, without the quadratic term.
func (p *program) value(flow []float64) float64 {
	total := 0.0
	load := make([]float64, p.localities)
	for a, x := range flow {
		total += x * p.cost[a]
		load[a%p.localities] += x
	}
	if p.variability != nil {
		deviation := p.deviations(flow)
		for l, y := range load {
			total += p.curves[l].meanValue(y, deviation[l])
		}
		return total
	}
	for l, y := range load {
		total += p.curves[l].value(y)
	}
	return total
}

// round turns the interior iterate into flows that keep every constraint to
// the last digit: no dust, no load above its headroom, all demand placed. What that
// moves is as small as the dust. It serves any iterate, however bad: then the
// result is still feasible.
func (p *program) round(x []float64) []float64 {
	n := p.localities
	t := newTransport(p.sources, n, make([]bool, len(x)))
	for s := range p.sources {
		sum := 0.0
		for l := range n {
			a := s*n + l
			if v := x[a]; p.open[a] && v > dust*p.demand[s] && v <= math.MaxFloat64 {
				t.flow[a] = v
				t.open[a] = true
				sum += v
			}
		}
		for l := range n {
			if a := s*n + l; t.flow[a] > 0 {
				t.flow[a] *= p.demand[s] / sum
			}
		}
	}
	t.trim(p.demand, p.headroom)
	// First along what is used already; whatever is left, along any arc.
	t.grow()
	copy(t.open, p.open)
	t.grow()
	for s, d := range t.unmet {
		if d > 0 {
			t.spread(s, d)
		}
	}
	return t.flow
}

// deviations are the standard deviations of the loads.
func (p *program) deviations(flow []float64) []float64 {
	out := make([]float64, p.localities)
	for s, variability := range p.variability {
		if variability == 0 {
			continue
		}
		for l, x := range flow[s*p.localities : (s+1)*p.localities] {
			out[l] += variability * x * variability * x
		}
	}
	for l, v := range out {
		out[l] = math.Sqrt(v)
	}
	return out
}

// split returns every locality whose headroom goes beyond the knee of its queue cost
// a second column for the straight part. Each column is smooth, which the
// method needs: at the knee the second derivative jumps to 0, and optima like
// to sit there. It returns the wider program (p itself if there is nothing to
// split) and the locality of each column.
func (p *program) split() (wide *program, of []int) {
	second := make([]bool, 0, 2*p.localities)
	for l := range p.localities {
		of, second = append(of, l), append(second, false)
		knee := p.curves[l].knee()
		if !p.forced && knee > 0 && knee < p.headroom[l]*(1-1e-6) {
			of, second = append(of, l), append(second, true)
		}
	}
	if len(of) == p.localities {
		return p, of
	}
	w := &program{sources: p.sources, localities: len(of), demand: p.demand}
	for j, l := range of {
		headroom, c := p.headroom[l], p.curves[l]
		switch {
		case second[j]:
			headroom -= c.knee()
			c = curve{service: c.service + c.kneeSlope/c.capacity}
		case j+1 < len(of) && second[j+1]:
			headroom = c.knee()
		}
		w.headroom, w.curves, w.share = append(w.headroom, headroom), append(w.curves, c), append(w.share, p.share[l])
		if p.warmPrices != nil {
			w.warmPrices = append(w.warmPrices, p.warmPrices[l])
		}
	}
	for s := range p.sources {
		for j, l := range of {
			a := s*p.localities + l
			w.cost, w.open = append(w.cost, p.cost[a]), append(w.open, p.open[a])
			if p.spring != nil {
				w.spring = append(w.spring, p.spring[a])
				target := p.target[a]
				if second[j] {
					target = 0
				}
				w.target = append(w.target, target)
			}
		}
	}
	return w, of
}

// optimum is the rounded answer to a program.
type optimum struct {
	flow       []float64 // per arc
	prices     []float64 // per locality
	iterations int
}

// solve runs the method on the smooth form of the program and folds the answer
// back.
func (p *program) solve(method *interior) optimum {
	wide, of := p.split()
	best := method.solve(wide)
	x := make([]float64, p.sources*p.localities)
	out := optimum{prices: make([]float64, p.localities), iterations: best.iterations}
	for s := range p.sources {
		for j, l := range of {
			x[s*p.localities+l] += best.x[s*wide.localities+j]
		}
	}
	for j, l := range slices.Backward(of) {
		out.prices[l] = best.p[j]
		if j+1 < len(of) && of[j+1] == l {
			// Sources see the cheaper of the two columns.
			out.prices[l] = min(best.p[j], best.p[j+1])
		}
	}
	out.flow = p.round(x)
	return out
}
