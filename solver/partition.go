package solver

import (
	"cmp"
	"math"
	"slices"
)

// splitTight splits saturated parts further: where demand fills everything,
// isolation may leave some ways no flow at all, in any solution, and such ways
// have no well-defined price. They are those between different strongly
// connected components of what is left to shift around some flow that fits.
// The order keeps the rule of parts: sources may use earlier parts only, which
// are fuller.
func (in *instance) splitTight(parts []component) []component {
	if in.complete {
		return parts
	}
	var out []component
	for _, p := range parts {
		if !p.saturated {
			out = append(out, p)
			continue
		}
		out = append(out, in.components(p)...)
	}
	return out
}

func (in *instance) components(p component) []component {
	headrooms := in.headrooms(p)
	t := newTransport(len(p.sources), len(p.localities), in.openAmong(p.sources, p.localities))
	sum := 0.0
	for j, l := range p.localities {
		t.headroom[j] = headrooms[l]
		sum += headrooms[l]
	}
	for i, s := range p.sources {
		t.unmet[i] = in.served[s] * min(1, sum/sumOf(in.served, p.sources))
	}
	t.fill()
	t.grow()
	search := scc{t: t, order: make([]int, len(t.level)), low: make([]int, len(t.level)), demand: pick(in.served, p.sources)}
	for v := range t.level {
		if search.order[v] == 0 {
			search.visit(v)
		}
	}
	out := make([]component, 0, len(search.found))
	for _, nodes := range search.found {
		q := component{saturated: true, factor: p.factor}
		for _, v := range nodes {
			if v < t.sources {
				q.sources = append(q.sources, p.sources[v])
			} else {
				q.localities = append(q.localities, p.localities[v-t.sources])
			}
		}
		slices.Sort(q.sources)
		slices.Sort(q.localities)
		if len(q.sources) > 0 && len(q.localities) == 0 {
			return []component{p} // rounding cut a source off
		}
		out = append(out, q)
	}
	return out
}

func pick[T any](values []T, indices []int) []T {
	out := make([]T, len(indices))
	for i, j := range indices {
		out[i] = values[j]
	}
	return out
}

// scc finds strongly connected components (Tarjan 1972), those that others
// lead to first. Nodes are sources, then localities; a source leads to where it
// may send, a locality to the sources that it could push out.
type scc struct {
	t      *transport
	demand []float64
	order  []int // of the first visit; 0 = none yet, -1 = component known
	low    []int
	count  int
	stack  []int
	found  [][]int
}

func (c *scc) visit(v int) {
	c.count++
	c.order[v], c.low[v] = c.count, c.count
	c.stack = append(c.stack, v)
	for w := range c.order {
		if !c.leads(v, w) {
			continue
		}
		if c.order[w] == 0 {
			c.visit(w)
			c.low[v] = min(c.low[v], c.low[w])
		} else if c.order[w] > 0 {
			c.low[v] = min(c.low[v], c.order[w])
		}
	}
	if c.low[v] < c.order[v] {
		return
	}
	at := slices.Index(c.stack, v)
	c.found = append(c.found, slices.Clone(c.stack[at:]))
	for _, w := range c.stack[at:] {
		c.order[w] = -1
	}
	c.stack = c.stack[:at]
}

// leads reports whether there is a way from node v to node w; flows that are
// nothing but rounding are none.
func (c *scc) leads(v, w int) bool {
	t := c.t
	switch {
	case v < t.sources && w >= t.sources:
		return t.open[v*t.localities+w-t.sources]
	case v >= t.sources && w < t.sources:
		return t.flow[w*t.localities+v-t.sources] > 1e-11*c.demand[w]
	}
	return false
}

const (
	// tight is the fill at which a part counts as saturated: between it and 1
	// the freedom left is too small to be worth a thought.
	tight = 1 - 1e-9
	// fullSlack is how far above 1 a factor is still rounding of a perfect fit.
	fullSlack = 1e-11
	// raiseSlack widens raised ceilings, so that rounding never crosses them.
	raiseSlack = 1e-9
	// unmetSlack is the share of a source's demand that rounding may leave.
	unmetSlack = 1e-12
)

// component is a piece of a service that can be solved alone. In a saturated part
// demand fills every locality to its ceiling times the factor; nobody else can
// send there.
type component struct {
	sources, localities []int
	saturated           bool
	factor              float64 // of the ceilings; >= tight where saturated, else 1
}

// partition splits demand by how hard it presses: again and again the sources
// that need the highest factor on the headrooms of all the localities they may use
// are split off together with these, until the rest fits. Without isolation
// that is all or nothing.
func (in *instance) partition(demand []float64, ramps []ramp) []component {
	sources := make([]int, 0, len(demand))
	for s, d := range demand {
		if d > 0 {
			sources = append(sources, s)
		}
	}
	localities := make([]int, in.localities)
	for l := range localities {
		localities[l] = l
	}
	var parts []component
	for len(sources) > 0 {
		cut, factor := in.hardest(sources, localities, demand, ramps)
		if cut == nil {
			break
		}
		near := in.reach(cut, localities)
		parts = append(parts, component{sources: cut, localities: near, saturated: true, factor: factor})
		sources = without(sources, cut)
		localities = without(localities, near)
	}
	if len(sources) > 0 || len(localities) > 0 {
		parts = append(parts, component{sources: sources, localities: localities, factor: 1})
	}
	return parts
}

// hardest finds the sources that need the highest factor, nil if all fit below
// tight. It is Newton's method on the factor (Dinkelbach 1967): each round
// raises it to what the last violated cut needs. Cuts are finitely many, and a
// source that gets its first headroom is never again a cut without any.
func (in *instance) hardest(sources, localities []int, demand []float64, ramps []ramp) (cut []int, factor float64) {
	factor = tight
	for range 2*len(sources) + len(localities) + 2 {
		next := in.violated(sources, localities, demand, ramps, factor)
		if next == nil {
			break
		}
		need := fit(ramps, in.reach(next, localities), sumOf(demand, next))
		if cut != nil && need <= factor {
			break // rounding: the last cut was the hardest
		}
		cut, factor = next, math.Max(need, tight)
		if math.IsInf(factor, 1) {
			break
		}
	}
	return cut, factor
}

// violated returns the sources of a cut whose demand is beyond the headrooms it can
// reach at that factor; nil if everything fits.
func (in *instance) violated(sources, localities []int, demand []float64, ramps []ramp, factor float64) []int {
	total, sum := 0.0, 0.0
	for _, s := range sources {
		total += demand[s]
	}
	for _, l := range localities {
		sum += ramps[l].headroom(factor)
	}
	if in.complete {
		if total <= sum*(1+unmetSlack) {
			return nil
		}
		return sources
	}
	t := newTransport(len(sources), len(localities), in.openAmong(sources, localities))
	for i, s := range sources {
		t.unmet[i] = demand[s]
	}
	for j, l := range localities {
		t.headroom[j] = ramps[l].headroom(factor)
	}
	cut := t.starved()
	if len(cut) == 0 {
		t.fill()
		t.grow()
		for i, s := range sources {
			if t.unmet[i] <= unmetSlack*demand[s] {
				t.unmet[i] = 0
			}
		}
		t.search()
		cut = t.reached()
	}
	if len(cut) == 0 {
		return nil
	}
	return pick(sources, cut)
}

// ramp is the headroom of a locality as a function of the factor:
// max(0, slope factor - base).
type ramp struct{ slope, base float64 }

func (r ramp) headroom(factor float64) float64 { return math.Max(0, r.slope*factor-r.base) }

// fit is the factor at which these ramps take exactly demand; infinite if no
// factor does.
func fit(ramps []ramp, localities []int, demand float64) float64 {
	rising := make([]ramp, 0, len(localities))
	for _, l := range localities {
		if ramps[l].slope > 0 {
			rising = append(rising, ramps[l])
		}
	}
	slices.SortFunc(rising, func(a, b ramp) int { return cmp.Compare(a.base/a.slope, b.base/b.slope) })
	slope, base := 0.0, 0.0
	for i, r := range rising {
		slope += r.slope
		base += r.base
		factor := (demand + base) / slope
		if i+1 == len(rising) || factor <= rising[i+1].base/rising[i+1].slope {
			return factor
		}
	}
	return math.Inf(1)
}

// headrooms are the headrooms of a part's localities at its factor, per locality of
// the instance. Where unmanaged load is so much larger than demand that the headrooms
// of a saturated part drown in its rounding, they are the slopes: what counts
// is their proportion.
func (in *instance) headrooms(p component) []float64 {
	ramps := in.ceilings()
	headrooms := make([]float64, in.localities)
	sum := 0.0
	for _, l := range p.localities {
		headrooms[l] = ramps[l].headroom(p.factor)
		sum += headrooms[l]
	}
	if demand := sumOf(in.served, p.sources); p.saturated && math.Abs(sum-demand) > 0.01*demand {
		for _, l := range p.localities {
			headrooms[l] = ramps[l].slope
		}
	}
	return headrooms
}

// componentProgram is the optimisation problem of a part of an instance.
type componentProgram struct {
	in         *instance
	component  component
	localities []int // of the part: those that have headroom and a source; prog has their numbers
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
		// Ties go in proportion to headroom: the barrier of a larger headroom is
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

// trim lowers flows where they exceed a headroom, and notes what is left to place.
func (t *transport) trim(demand, headroom []float64) {
	n := t.localities
	for l := range n {
		y := 0.0
		for s := range t.sources {
			y += t.flow[s*n+l]
		}
		if y > headroom[l] {
			for s := range t.sources {
				t.flow[s*n+l] *= headroom[l] / y
			}
			y = headroom[l]
		}
		t.headroom[l] = headroom[l] - y
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
