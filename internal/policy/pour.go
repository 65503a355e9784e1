package policy

import (
	"math"
	"slices"
)

// pour lets all sources fill their first tier, then their second, and so on:
// whoever is near comes before whoever overflows. Sources that want more of a
// place than it has left get parts in proportion. A place that does not keep all
// for its health passes on the rest to others of the tier, then to the next;
// what finds no room elsewhere comes back to it. room is used up; what no tier
// took is returned.
func (p *Problem) pour(f Flows, headroom []float64, tiers [][][]int) (left []float64) {
	left = slices.Clone(p.Demand)
	if slices.ContainsFunc(p.Keep, func(k float64) bool { return k < 1 }) {
		p.fill(f, headroom, left, tiers, true)
	}
	p.fill(f, headroom, left, tiers, false)
	return left
}

// fill is one pass over all tiers.
func (p *Problem) fill(f Flows, headroom, left []float64, tiers [][][]int, keeping bool) {
	depth := 0
	for s := range tiers {
		depth = max(depth, len(tiers[s]))
	}
	for k := range depth {
		var most Flows
		if keeping {
			most = p.kept(headroom, left, tiers, k)
		}
		// Tiers of different sources may overlap in part, so that one round
		// leaves room; each round fills a place, satisfies a source, or gives some
		// place all that it keeps.
		for range 2 * (len(p.Places) + len(p.Demand)) {
			if !p.round(f, headroom, left, tiers, k, most) {
				break
			}
		}
	}
}

// kept is the most that each source may send to the places of a tier because of
// their health.
func (p *Problem) kept(headroom, left []float64, tiers [][][]int, k int) Flows {
	out := p.flows()
	for s := range tiers {
		if k >= len(tiers[s]) {
			continue
		}
		total := 0.0
		for _, l := range tiers[s][k] {
			total += headroom[l]
		}
		for _, l := range tiers[s][k] {
			switch {
			case p.keep(l) >= 1:
				out[s][l] = math.Inf(1)
			case total > leastHeadroom:
				out[s][l] = p.keep(l) * left[s] * headroom[l] / total
			}
		}
	}
	return out
}

// leastHeadroom is what counts as no room, and no demand, requests/s.
const leastHeadroom = 1e-9

// round has every source ask for what is left of its tier, and gives it out; it
// tells whether anybody asked. most, if it is not nil, bounds each flow, and is
// used up.
func (p *Problem) round(f Flows, headroom, left []float64, tiers [][][]int, k int, most Flows) bool {
	offers, asked := p.flows(), make([]float64, len(headroom))
	some := false
	for s := range tiers {
		if k < len(tiers[s]) && left[s] > leastHeadroom {
			bounds := []float64(nil)
			if most != nil {
				bounds = most[s]
			}
			some = offer(offers[s], asked, tiers[s][k], headroom, left[s], bounds) || some
		}
	}
	taken := make([]float64, len(headroom))
	for s := range offers {
		for l, x := range offers[s] {
			if x <= 0 {
				continue
			}
			if asked[l] > headroom[l] {
				x *= headroom[l] / asked[l]
			}
			f[s][l] += x
			left[s] -= x
			taken[l] += x
			if most != nil {
				most[s][l] -= x
			}
		}
	}
	for l := range headroom {
		headroom[l] = max(0, headroom[l]-taken[l])
	}
	return some
}

// offer splits what is left of a source over the places of a tier by their room,
// each up to its bound, if there are any; false where nothing is open.
func offer(offers, asked []float64, tier []int, headroom []float64, left float64, bounds []float64) bool {
	open := func(l int) bool { return headroom[l] > 0 && (bounds == nil || bounds[l] > leastHeadroom) }
	total := 0.0
	for _, l := range tier {
		if open(l) {
			total += headroom[l]
		}
	}
	if total <= leastHeadroom {
		return false
	}
	for _, l := range tier {
		if !open(l) {
			continue
		}
		offers[l] = left * headroom[l] / total
		if bounds != nil {
			offers[l] = min(offers[l], bounds[l])
		}
		asked[l] += offers[l]
	}
	return true
}
