package solver

import "slices"

// splitTight splits saturated parts further: where demand fills everything,
// isolation may leave some ways no flow at all, in any solution, and such ways
// have no well-defined price. They are those between different strongly
// connected components of what is left to shift around some flow that fits.
// The order keeps the rule of parts: sources may use earlier parts only, which
// are fuller.
func (in *instance) splitTight(parts []part) []part {
	if in.complete {
		return parts
	}
	var out []part
	for _, p := range parts {
		if !p.saturated {
			out = append(out, p)
			continue
		}
		out = append(out, in.components(p)...)
	}
	return out
}

func (in *instance) components(p part) []part {
	rooms := in.rooms(p)
	t := newTransport(len(p.sources), len(p.localities), in.openAmong(p.sources, p.localities))
	sum := 0.0
	for j, l := range p.localities {
		t.room[j] = rooms[l]
		sum += rooms[l]
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
	out := make([]part, 0, len(search.found))
	for _, nodes := range search.found {
		q := part{saturated: true, factor: p.factor}
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
			return []part{p} // rounding cut a source off
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

// leads tells whether there is a way from node v to node w; flows that are
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
