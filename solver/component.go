package solver

import "math"

// componentProgram is the optimisation problem of a part of an instance.
type componentProgram struct {
	in         *instance
	component  component
	localities []int // of the part: those that have room and a source; prog has their numbers
	prog       *program
}

// solve solves the part and writes its flows and prices into the answer.
func (pp *componentProgram) solve(method *interior, out *answer) {
	in := pp.in
	for _, l := range pp.component.localities {
		out.prices[l] = in.curves[l].slope(0)
	}
	if len(pp.component.sources) == 0 || len(pp.localities) == 0 {
		return
	}
	best := pp.prog.solve(method)
	out.iterations += best.iterations
	flow := pp.breakTies(best, method, &out.iterations)
	for i, s := range pp.component.sources {
		for j, l := range pp.localities {
			out.flow[s*in.localities+l] = flow[i*pp.prog.localities+j]
		}
	}
	for j, l := range pp.localities {
		out.prices[l] = best.prices[j]
	}
}

// newComponentProgram returns the problem of a part.
func newComponentProgram(in *instance, p component) componentProgram {
	var localities []int
	headrooms := in.headrooms(p)
	for _, l := range in.reach(p.sources, p.localities) {
		if headrooms[l] > 0 {
			localities = append(localities, l)
		}
	}
	prog := &program{
		sources: len(p.sources), localities: len(localities), forced: p.saturated,
		open:     in.openAmong(p.sources, localities),
		headroom: make([]float64, len(localities)), share: make([]float64, len(localities)),
		curves: make([]curve, len(localities)),
	}
	total, sum := 0.0, 0.0
	for _, s := range p.sources {
		prog.demand = append(prog.demand, in.served[s])
		total += in.served[s]
		for _, l := range localities {
			prog.cost = append(prog.cost, in.cost[s*in.localities+l])
		}
	}
	for j, l := range localities {
		prog.headroom[j] = headrooms[l]
		prog.curves[j] = in.curves[l]
		sum += prog.headroom[j]
		if in.warm {
			prog.warmPrices = append(prog.warmPrices, in.service.WarmPrices[l])
		}
	}
	mean := sum / float64(len(localities))
	for j := range prog.headroom {
		// Ties go in proportion to headroom: the barrier of a larger room is
		// stronger. The limits keep the method well conditioned.
		prog.share[j] = min(max(prog.headroom[j]/mean, 1e-3), 1e3)
		if p.saturated {
			prog.headroom[j] *= total / sum
		}
	}
	return componentProgram{in: in, component: p, localities: localities, prog: prog}
}

const (
	// dust is the share of a source that counts as nothing.
	dust = 1e-9
)

// trim lowers flows where they exceed a room, and notes what is left to place.
func (t *transport) trim(demand, room []float64) {
	n := t.localities
	for l := range n {
		y := 0.0
		for s := range t.sources {
			y += t.flow[s*n+l]
		}
		if y > room[l] {
			for s := range t.sources {
				t.flow[s*n+l] *= room[l] / y
			}
			y = room[l]
		}
		t.headroom[l] = room[l] - y
	}
	for s, d := range demand {
		sum := 0.0
		for l := range n {
			sum += t.flow[s*n+l]
		}
		t.unmet[s] = math.Max(0, d-sum)
		if t.unmet[s] <= 1e-15*d {
			t.unmet[s] = 0
		}
	}
}

// spread adds what rounding left of a source to its largest flow.
func (t *transport) spread(s int, d float64) {
	best := -1
	for l := range t.localities {
		a := s*t.localities + l
		if t.open[a] && (best < 0 || t.flow[a] > t.flow[best]) {
			best = a
		}
	}
	if best >= 0 {
		t.flow[best] += d
	}
}
