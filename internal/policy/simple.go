package policy

// Nearest sends every source to its closest place with capacity, however full
// that is. Places at the same distance share in proportion to their capacity.
// What a place does not keep for its health goes to the next.
func Nearest(p Problem) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	tiers := p.zoneTiers()
	for s, d := range p.Demand {
		left := 1.0
		for _, tier := range tiers[s] {
			left = p.hand(f[s], tier, left)
		}
		for l := range f[s] {
			f[s][l] *= d / max(1-left, leastHeadroom) // all of them spill: then each as much
		}
	}
	return f, nil
}

// hand gives a tier what is left of a source, and tells what it did not keep.
func (p *Problem) hand(row []float64, tier []int, left float64) float64 {
	total, kept := 0.0, 0.0
	for _, l := range tier {
		total += p.Localities[l].Capacity
	}
	for _, l := range tier {
		part := left * p.Localities[l].Capacity / total * p.keep(l)
		row[l] += part
		kept += part
	}
	return max(0, left-kept) // a tier that keeps all may add up to an ulp more
}

// Fixed splits every source by the weights of the places that it may use, and
// sends it to the nearest of those without a weight when no other is left. How
// full they are does not count.
func Fixed(p Problem) (Flows, error) {
	f, err := Nearest(p)
	if err != nil || p.Weights == nil {
		return f, err
	}
	for s, d := range p.Demand {
		total := 0.0
		for l, w := range p.Weights {
			if p.open(s, l) {
				total += max(0, w) * p.keep(l)
			}
		}
		if total <= 0 {
			continue
		}
		for l, w := range p.Weights {
			f[s][l] = 0
			if p.open(s, l) {
				f[s][l] = d * max(0, w) * p.keep(l) / total
			}
		}
	}
	return f, nil
}

// SprayToWorld spreads every source over all places in proportion to what they
// may take, wherever they are.
func SprayToWorld(p Problem) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	if p.Preferred == nil {
		p.spill(f, p.Demand)
		return f, nil
	}
	tiers := make([][][]int, len(p.Demand))
	for s := range tiers {
		tiers[s] = make([][]int, 2)
		for l := range p.Places {
			if p.open(s, l) {
				tiers[s][p.rank(l)] = append(tiers[s][p.rank(l)], l)
			}
		}
	}
	p.spill(f, p.pour(f, p.targets(), tiers))
	return f, nil
}

// spill adds what is left of each source to all places that it may use, in
// proportion to what they may take: where all are full, all overflow by the
// same factor.
func (p *Problem) spill(f Flows, left []float64) {
	for s, d := range left {
		if d <= 0 {
			continue
		}
		weights := p.weights(s)
		total := 0.0
		for _, w := range weights {
			total += w
		}
		for l, w := range weights {
			if w > 0 {
				f[s][l] += d * w / total
			}
		}
	}
}

// weights is what the places of a source may take, or, where background leaves
// nothing of that anywhere, what they are made for.
func (p *Problem) weights(s int) []float64 {
	out := make([]float64, len(p.Places))
	some := false
	for l := range out {
		if p.open(s, l) {
			out[l] = p.target(l, 1)
			some = some || out[l] > 0
		}
	}
	if some {
		return out
	}
	for l := range out {
		if p.open(s, l) {
			out[l] = p.Localities[l].Capacity
		}
	}
	return out
}
