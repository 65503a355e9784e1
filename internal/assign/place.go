package assign

import (
	"cmp"
	"slices"
)

// placing is what finds a place for shares that have none: lost, per source, goes into its
// shares. lost is nil as long as nothing is.
type placing struct {
	t       *terms
	sources []sourceState
	lost    []float64
	into    shares
}

// lose adds to what the source at i lost.
func (p *placing) lose(i int, share float64) {
	if share <= 0 {
		return
	}
	if p.lost == nil {
		p.lost = make([]float64, len(p.sources))
	}
	p.lost[i] += share
}

// leg is a site that could take what a source lost.
type leg struct {
	rank         int // 0 = preferred, or none is
	dist         float64
	source, site int
}

// sameDistance is how close two distances must be to count as a tie, ms.
const sameDistance = 1e-9

// nearest puts the sources' lost shares onto the nearest permitted sites with headroom: the closest
// pairs of source and site first, ties split by headroom. A share without any such site stays
// lost.
func (p *placing) nearest(headroom []float64, may func(i, site int) bool) {
	sites := p.t.sites
	prefers := slices.ContainsFunc(sites, func(s Site) bool { return s.Preferred })
	rank := func(l int) int {
		if prefers && !sites[l].Preferred {
			return 1
		}
		return 0
	}
	var legs []leg
	for i, lost := range p.lost {
		if lost <= tiny {
			continue
		}
		for l := range sites {
			if headroom[l] > 0 && may(i, l) {
				legs = append(legs, leg{rank: rank(l), dist: p.sources[i].dist[l], source: i, site: l})
			}
		}
	}
	slices.SortFunc(legs, func(a, b leg) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.dist, b.dist), cmp.Compare(a.source, b.source), cmp.Compare(a.site, b.site))
	})
	for i := 0; i < len(legs); {
		j := i + 1
		for j < len(legs) && legs[j].source == legs[i].source && legs[j].rank == legs[i].rank && legs[j].dist-legs[i].dist <= sameDistance {
			j++
		}
		p.fill(legs[i].source, legs[i:j], headroom)
		i = j
	}
}

// fill puts as much of the source's lost share as fits onto equally distant sites.
func (p *placing) fill(i int, legs []leg, headroom []float64) {
	total := 0.0
	for _, g := range legs {
		total += headroom[g.site]
	}
	if total <= 0 || p.lost[i] <= 0 {
		return
	}
	share, rate := p.lost[i], p.sources[i].rate
	if rate > 0 {
		share = min(share, total/rate)
	}
	for _, g := range legs {
		part := share * headroom[g.site] / total
		p.into.of(i)[g.site] += part
		headroom[g.site] = max(0, headroom[g.site]-part*rate)
	}
	p.lost[i] = max(0, p.lost[i]-share)
}

// rest spreads the shares that no site could take in proportion to the limits: then all are
// equally overloaded.
func (p *placing) rest() {
	for i, lost := range p.lost {
		if lost > 0 {
			p.sources[i].splitInto(p.into.of(i), lost)
			p.lost[i] = 0
		}
	}
}

// open reports whether the traffic of the source at i may be put on a site.
func (p *placing) open(i, site int) bool { return p.sources[i].open(site) }

// splitInto adds a share to dst in proportion to what open sites are
// made for; when that is zero everywhere, evenly over the sites in use.
func (s *sourceState) splitInto(dst []float64, share float64) {
	measure := func(l int) float64 {
		if s.open(l) {
			return s.scope.spread[l]
		}
		return 0
	}
	total, n := 0.0, 0
	for l := range dst {
		total += measure(l)
		if s.scope.use[l] {
			n++
		}
	}
	for l := range dst {
		switch {
		case total > 0:
			dst[l] += share * measure(l) / total
		case s.scope.use[l]:
			dst[l] += share / float64(n)
		}
	}
}

// splitNear puts everything on the open sites whose cost is at most bound, in
// proportion to headroom, or, where none has headroom, to what they are made for.
func (s *sourceState) splitNear(dst, cost []float64, bound float64, headroom []float64) {
	in := func(l int) bool { return s.open(l) && cost[l] <= bound }
	for _, measure := range [][]float64{headroom, s.scope.spread} {
		total := 0.0
		for l := range dst {
			if in(l) {
				total += measure[l]
			}
		}
		if total <= 0 {
			continue
		}
		for l := range dst {
			dst[l] = 0
			if in(l) {
				dst[l] = measure[l] / total
			}
		}
		return
	}
	n := 0.0
	for l := range dst {
		if in(l) {
			n++
		}
	}
	for l := range dst {
		dst[l] = 0
		if in(l) {
			dst[l] = 1 / n
		}
	}
}
