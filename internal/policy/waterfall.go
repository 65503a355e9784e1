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
		room := make([]float64, len(p.Places))
		for l := range room {
			room[l] = r.Full*p.Localities[l].Capacity - p.Localities[l].Background
			for s := range f {
				room[l] -= f[s][l]
			}
			room[l] = max(0, room[l])
		}
		tiers := make([][][]int, len(p.Demand))
		for s := range tiers {
			tiers[s] = [][]int{p.within(s, r.MS)}
		}
		rest := p
		rest.Demand = left
		left = rest.pour(f, room, tiers)
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

// order gives the indices of v by rank, then by growing value.
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
			return math.Inf(1) // it is at no distance from anywhere: whoever knows where it is comes first
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
