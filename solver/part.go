package solver

import "math"

// solvePart solves one part and writes its flows and prices into the answer.
func (in *instance) solvePart(p part, method *interior, out *answer) {
	for _, l := range p.localities {
		out.prices[l] = in.curves[l].slope(0)
	}
	prog, localities := in.program(p)
	if len(p.sources) == 0 || len(localities) == 0 {
		return
	}
	best := prog.solve(method)
	out.iterations += best.iterations
	flow := in.breakTies(p, localities, prog, best, method, &out.iterations)
	for i, s := range p.sources {
		for j, l := range localities {
			out.flow[s*in.localities+l] = flow[i*prog.localities+j]
		}
	}
	for j, l := range localities {
		out.prices[l] = best.prices[j]
	}
}

// program is the optimisation problem of a part, over those of its localities
// that have room and a source.
func (in *instance) program(p part) (prog *program, localities []int) {
	rooms := in.rooms(p)
	for _, l := range in.reach(p.sources, p.localities) {
		if rooms[l] > 0 {
			localities = append(localities, l)
		}
	}
	prog = &program{
		sources: len(p.sources), localities: len(localities), forced: p.saturated,
		open: in.openAmong(p.sources, localities),
		room: make([]float64, len(localities)), share: make([]float64, len(localities)),
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
		prog.room[j] = rooms[l]
		prog.curves[j] = in.curves[l]
		sum += prog.room[j]
		if in.warm {
			prog.warmPrices = append(prog.warmPrices, in.service.WarmPrices[l])
		}
	}
	mean := sum / float64(len(localities))
	for j := range prog.room {
		// Ties go in proportion to headroom: the barrier of a larger room is
		// stronger. The limits keep the method well conditioned.
		prog.share[j] = min(max(prog.room[j]/mean, 1e-3), 1e3)
		if p.saturated {
			prog.room[j] *= total / sum
		}
	}
	return prog, localities
}

// rooms are the rooms of a part's localities at its factor, per locality of
// the instance. Where background is so much larger than demand that the rooms
// of a saturated part drown in its rounding, they are the slopes: what counts
// is their proportion.
func (in *instance) rooms(p part) []float64 {
	ramps := in.ceilings()
	rooms := make([]float64, in.localities)
	sum := 0.0
	for _, l := range p.localities {
		rooms[l] = ramps[l].room(p.factor)
		sum += rooms[l]
	}
	if demand := sumOf(in.served, p.sources); p.saturated && math.Abs(sum-demand) > 0.01*demand {
		for _, l := range p.localities {
			rooms[l] = ramps[l].slope
		}
	}
	return rooms
}

// value is the cost of flows in the program, without the quadratic term.
func (p *program) value(flow []float64) float64 {
	total := 0.0
	load := make([]float64, p.localities)
	for a, x := range flow {
		total += x * p.cost[a]
		load[a%p.localities] += x
	}
	if p.swing != nil {
		deviation := p.deviations(flow)
		for l, y := range load {
			total += p.curves[l].swung(y, deviation[l])
		}
		return total
	}
	for l, y := range load {
		total += p.curves[l].value(y)
	}
	return total
}

const (
	// dust is the share of a source that counts as nothing.
	dust = 1e-9
)

// round turns the interior iterate into flows that keep every constraint to
// the last digit: no dust, no load above its room, all demand placed. What that
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
	t.trim(p.demand, p.room)
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
		t.room[l] = room[l] - y
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
