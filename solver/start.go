package solver

import "math"

// start chooses flows in proportion to room and prices that make all reduced
// costs positive, of the size of what there is to gain.
func (in *interior) start() {
	p := in.prog
	n := p.localities
	in.spreadByRoom()
	for l := range n {
		in.p[l] = p.curves[l].slope(math.Min(in.y[l], p.room[l]))
	}
	tau := in.startSources(in.startMargin()) / float64(in.arcs)
	for l := range n {
		if p.forced {
			in.y[l] = p.room[l]
			continue
		}
		in.slack[l] = math.Max(p.room[l]-in.y[l], 0.1*p.room[l])
		in.mu[l] = tau / in.slack[l]
		in.p[l] += in.mu[l]
		for s := range p.sources {
			if a := s*n + l; p.open[a] {
				in.z[a] += in.mu[l]
			}
		}
	}
}

func (in *interior) spreadByRoom() {
	p := in.prog
	n := p.localities
	for s := range p.sources {
		sum := 0.0
		for l := range n {
			if p.open[s*n+l] {
				sum += p.room[l]
			}
		}
		for l := range n {
			if a := s*n + l; p.open[a] {
				in.x[a] = p.demand[s] * p.room[l] / sum
				in.y[l] += in.x[a]
			}
		}
	}
}

// startMargin sets each source's price to its cheapest way and returns what a
// request could gain on average by taking it.
func (in *interior) startMargin() float64 {
	p := in.prog
	n := p.localities
	total, gain := 0.0, 0.0
	for s := range p.sources {
		best, paid := math.Inf(1), 0.0
		for l := range n {
			if a := s*n + l; p.open[a] {
				c := p.cost[a] + in.p[l]
				best = math.Min(best, c)
				paid += in.x[a] * c
			}
		}
		in.v[s] = best
		total += p.demand[s]
		gain += paid - best*p.demand[s]
	}
	return math.Max(gain/total, 1e-3)
}

// startSources lowers the sources' prices by margin, so that every way has a
// positive reduced cost, and returns the complementarity of all.
func (in *interior) startSources(margin float64) float64 {
	p := in.prog
	n := p.localities
	sum := 0.0
	for s := range p.sources {
		in.v[s] -= margin
		for l := range n {
			if a := s*n + l; p.open[a] {
				in.z[a] = p.cost[a] + in.p[l] - in.v[s]
				sum += in.x[a] * in.z[a]
			}
		}
	}
	return sum
}
