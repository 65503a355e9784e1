package policy

import (
	"cmp"
	"math"
	"slices"
)

// WaterfallByRegion fills the nearest region of each source in proportion to
// what its zones may take, each source preferring near zones; what does not fit
// overflows to the next region by latency. When everything is full, all
// overflow by the same factor.
func WaterfallByRegion(p Problem) (Flows, error) { return byRegion(p, true) }

// SprayToRegion is [WaterfallByRegion] without preference for near zones.
func SprayToRegion(p Problem) (Flows, error) { return byRegion(p, false) }

// WaterfallByZone fills the nearest zone of each source first, then the next by
// latency. Zones at the same distance fill in proportion to what they may take.
func WaterfallByZone(p Problem) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	left := p.pour(f, p.targets(), p.zoneTiers())
	p.spill(f, left)
	return f, nil
}

// Rings fills the places within Rings[0].MS of each source up to Rings[0].Full
// of their capacity, then those within Rings[1].MS up to Rings[1].Full, and so
// on; what is left spreads over all of them by what they may take. Ceilings do not count
// while rings are filled.
func Rings(p Problem, rings []Ring) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	left := slices.Clone(p.Demand)
	for _, r := range rings {
		headroom := make([]float64, len(p.Places))
		for l := range headroom {
			headroom[l] = r.Full*p.Localities[l].Capacity - p.Localities[l].Unmanaged
			for s := range f {
				headroom[l] -= f[s][l]
			}
			headroom[l] = max(0, headroom[l])
		}
		tiers := make([][][]int, len(p.Demand))
		for s := range tiers {
			tiers[s] = [][]int{p.within(s, r.MS)}
		}
		rest := p
		rest.Demand = left
		left = rest.pour(f, headroom, tiers)
	}
	p.spill(f, left)
	return f, nil
}

// Ring is a circle around each source.
type Ring struct {
	MS   float64 // latency up to which places belong to it
	Full float64 // utilization up to which it is filled before the next one opens
}

func (p *Problem) within(s int, ms float64) []int {
	var out []int
	for l := range p.Places {
		if p.open(s, l) && p.Latency[s][l] <= ms {
			out = append(out, l)
		}
	}
	return out
}

func byRegion(p Problem, near bool) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	left := p.pour(f, p.targets(), p.regionTiers())
	if near {
		p.prefer(f)
	}
	p.spill(f, left)
	return f, nil
}

// regionTiers lists, for each source, its regions from the nearest one on, each
// as the places in it. A region is as near as its nearest place.
func (p *Problem) regionTiers() [][][]int {
	out := make([][][]int, len(p.Demand))
	for s := range out {
		type group struct {
			region string
			rank   int
		}
		var names []group
		var nearest []float64
		var members [][]int
		for l, place := range p.Places {
			if !p.open(s, l) {
				continue
			}
			if p.Sources[s].IsZero() {
				place.Region = "" // nobody knows which region is near: all are one
			}
			g := group{place.Region, p.rank(l)}
			i := slices.Index(names, g)
			if i < 0 {
				i = len(names)
				names, nearest, members = append(names, g), append(nearest, math.Inf(1)), append(members, nil)
			}
			nearest[i] = min(nearest[i], p.Latency[s][l])
			members[i] = append(members[i], l)
		}
		for _, i := range order(nearest, func(i int) int { return names[i].rank }) {
			out[s] = append(out[s], members[i])
		}
	}
	return out
}

// zoneTiers lists, for each source, its places from the nearest one on, those
// at the same distance together.
func (p *Problem) zoneTiers() [][][]int {
	out := make([][][]int, len(p.Demand))
	for s := range out {
		last := -1
		for _, l := range order(p.Latency[s], p.rank) {
			switch {
			case !p.open(s, l):
				continue
			case last >= 0 && p.Latency[s][l] == p.Latency[s][last] && p.rank(l) == p.rank(last):
				tier := &out[s][len(out[s])-1]
				*tier = append(*tier, l)
			default:
				out[s] = append(out[s], []int{l})
			}
			last = l
		}
	}
	return out
}

// order returns the indices of v by rank, then by growing value.
func order(v []float64, rank func(int) int) []int {
	out := make([]int, len(v))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(v[a], v[b])) })
	return out
}

// prefer exchanges what sources have within each region so that near pairs
// come first. What each source sends to a region, and what each place gets,
// stays.
func (p *Problem) prefer(f Flows) {
	var regions []string
	for _, place := range p.Places {
		if !slices.Contains(regions, place.Region) {
			regions = append(regions, place.Region)
		}
	}
	for _, r := range regions {
		p.preferWithin(f, r)
	}
}

func (p *Problem) preferWithin(f Flows, region string) {
	type pair struct{ s, l int }
	var pairs []pair
	out, in := make([]float64, len(f)), make([]float64, len(p.Places))
	for s := range f {
		for l, place := range p.Places {
			if place.Region != region || !p.open(s, l) {
				continue
			}
			out[s] += f[s][l]
			in[l] += f[s][l]
			f[s][l] = 0
			pairs = append(pairs, pair{s, l})
		}
	}
	far := func(x pair) float64 {
		if p.Sources[x.s].IsZero() {
			return math.Inf(1) // it is at no distance from anywhere: sources with a known locality come first
		}
		return p.Latency[x.s][x.l]
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(far(a), far(b)) })
	for _, x := range pairs {
		move := min(out[x.s], in[x.l])
		f[x.s][x.l] += move
		out[x.s] -= move
		in[x.l] -= move
	}
	// Where Allowed differs between sources, the greedy exchange may strand some.
	for _, x := range pairs {
		if out[x.s] > 0 {
			f[x.s][x.l] += out[x.s]
			out[x.s] = 0
		}
	}
}

// pour lets all sources fill their first tier, then their second, and so on: near sources come
// before those that overflow. Sources that want more of a place than it has left get parts in
// proportion. A place that does not keep all for its health passes on the rest to others of the
// tier, then to the next; what finds no headroom elsewhere comes back to it. headroom is used up;
// what no tier took is returned.
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
		// leaves headroom; each round fills a place, satisfies a source, or gives some
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

// leastHeadroom is the rate below which headroom, and demand, count as none, requests/s.
const leastHeadroom = 1e-9

// round has every source ask for the remaining headroom of its tier, and distributes it; it
// reports whether any source asked. most, if it is not nil, bounds each flow, and is used up.
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

// offer splits what is left of a source over the places of a tier by their headroom,
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
