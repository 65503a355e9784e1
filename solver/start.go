package solver

import "math"

// start chooses flows in proportion to headroom and prices that make all reduced
// costs positive, of the size of what there is to gain.
func (in *interior) start() {
	p := in.prog
	n := p.localities
	in.spreadByHeadroom()
	for l := range n {
		in.p[l] = p.curves[l].slope(math.Min(in.y[l], p.headroom[l]))
	}
	tau := in.startSources(in.startMargin()) / float64(in.arcs)
	for l := range n {
		if p.forced {
			in.y[l] = p.headroom[l]
			continue
		}
		in.slack[l] = math.Max(p.headroom[l]-in.y[l], 0.1*p.headroom[l])
		in.mu[l] = tau / in.slack[l]
		in.p[l] += in.mu[l]
		for s := range p.sources {
			if a := s*n + l; p.open[a] {
				in.z[a] += in.mu[l]
			}
		}
	}
}

func (in *interior) spreadByHeadroom() {
	p := in.prog
	n := p.localities
	for s := range p.sources {
		sum := 0.0
		for l := range n {
			if p.open[s*n+l] {
				sum += p.headroom[l]
			}
		}
		for l := range n {
			if a := s*n + l; p.open[a] {
				in.x[a] = p.demand[s] * p.headroom[l] / sum
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

const (
	// warmGap is the relative gap that a warm start begins with: farther from the
	// end than prices move from one solution to the next, for of an iterate too
	// near to the walls a step is short. Of 1e-3 to 0.3 it takes the fewest
	// iterations where localities are very different, and where they are alike it
	// costs one more than the best.
	warmGap = 3e-2
	// warmIterations is where a warm start is given up: those that get there
	// mostly need 5 to 25, and a cold one no more than twice as many.
	warmIterations = 30
	// warmRounds is how often Newton's method refines the price of a source.
	warmRounds = 6
	// warmStep is how exactly the load that goes with a price is found, as a
	// fraction of the headroom.
	warmStep = 1e-6
	// maxWarmPrice, in ms, is far above what prices are for.
	maxWarmPrice = 1e12
)

// plausible reports whether prices are worth starting from.
func plausible(prices []float64) bool {
	for _, p := range prices {
		if !(p >= 0 && p <= maxWarmPrice) {
			return false
		}
	}
	return prices != nil
}

// startWarm builds an iterate around known prices that is centred, and misses
// nothing but that flows add up to loads, which is what one step can fix.
func (in *interior) startWarm() {
	p := in.prog
	n := p.localities
	value := 0.0
	for s := range p.sources {
		best := math.Inf(1)
		for l := range n {
			if a := s*n + l; p.open[a] {
				best = math.Min(best, p.cost[a]+p.warmPrices[l])
			}
		}
		value += p.demand[s] * math.Abs(best)
	}
	tau := warmGap * value / float64(in.arcs+n)
	for l := range n {
		in.p[l], in.y[l] = p.warmPrices[l], p.headroom[l]
		if !p.forced {
			in.warmLoad(l, tau)
		}
	}
	for s := range p.sources {
		in.warmSource(s, tau)
	}
}

// warmLoad chooses the load that goes with a price, and the price that goes
// exactly with that load.
func (in *interior) warmLoad(l int, tau float64) {
	c, headroom := &in.prog.curves[l], in.prog.headroom[l]
	lo, hi := 1e-4*headroom, headroom
	y := (lo + hi) / 2
	for range 30 {
		slope, bend := c.slopes(y)
		wall := tau / (headroom - y)
		over := slope + wall - in.p[l]
		if over < 0 {
			lo = y
		} else {
			hi = y
		}
		next := y - over/(bend+wall/(headroom-y))
		if !(next > lo && next < hi) {
			next = (lo + hi) / 2
		}
		if math.Abs(next-y) <= warmStep*headroom {
			break
		}
		y = next
	}
	in.y[l] = y
	in.slack[l] = headroom - y
	in.mu[l] = tau / in.slack[l]
	in.p[l] = c.slope(y) + in.mu[l]
}

// warmSource spreads a source with x z = tau share on every arc: sum of
// tau share / (cost + p - v) = demand determines v.
func (in *interior) warmSource(s int, tau float64) {
	p := in.prog
	n := p.localities
	best, nearest := math.Inf(1), 0
	for l := range n {
		if a := s*n + l; p.open[a] && p.cost[a]+in.p[l] < best {
			best, nearest = p.cost[a]+in.p[l], l
		}
	}
	// Newton on 1/sum is concave in the margin: from below it never overshoots.
	margin := tau * p.share[nearest] / p.demand[s]
	for range warmRounds {
		sum, slope := 0.0, 0.0
		for l := range n {
			if a := s*n + l; p.open[a] {
				z := p.cost[a] + in.p[l] - best + margin
				x := tau * p.share[l] / z
				sum += x
				slope += x / z
			}
		}
		margin += (sum/p.demand[s] - 1) * sum / slope
	}
	in.v[s] = best - margin
	for l := range n {
		if a := s*n + l; p.open[a] {
			in.z[a] = p.cost[a] + in.p[l] - in.v[s]
			in.x[a] = tau * p.share[l] / in.z[a]
		}
	}
}
