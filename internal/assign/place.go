package assign

import (
	"cmp"
	"slices"
)

// leg is a site that could take what a row lost.
type leg struct {
	rank      int // 0 = preferred, or none is
	dist      float64
	row, site int
}

// sameDistance is how close two distances must be to count as a tie, ms.
const sameDistance = 1e-9

// placeNearest puts what the rows lost onto the nearest sites with room that
// may take it: the closest pairs of source and site first, ties split by room.
// What finds no room stays in lost.
func (w *work) placeNearest(dst func(*row) []float64, room []float64, may func(r *row, site int) bool) {
	prefers := slices.ContainsFunc(w.sites, func(s Site) bool { return s.Preferred })
	rank := func(l int) int {
		if prefers && !w.sites[l].Preferred {
			return 1
		}
		return 0
	}
	var legs []leg
	for i := range w.rows {
		r := &w.rows[i]
		if r.lost <= tiny {
			continue
		}
		for l := range w.sites {
			if room[l] > 0 && may(r, l) {
				legs = append(legs, leg{rank: rank(l), dist: r.dist[l], row: i, site: l})
			}
		}
	}
	slices.SortFunc(legs, func(a, b leg) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.dist, b.dist), cmp.Compare(a.row, b.row), cmp.Compare(a.site, b.site))
	})
	for i := 0; i < len(legs); {
		j := i + 1
		for j < len(legs) && legs[j].row == legs[i].row && legs[j].rank == legs[i].rank && legs[j].dist-legs[i].dist <= sameDistance {
			j++
		}
		r := &w.rows[legs[i].row]
		r.fill(legs[i:j], dst(r), room)
		i = j
	}
}

// fill puts as much of the row's lost share as fits onto equally distant sites.
func (r *row) fill(legs []leg, dst, room []float64) {
	total := 0.0
	for _, g := range legs {
		total += room[g.site]
	}
	if total <= 0 || r.lost <= 0 {
		return
	}
	share := r.lost
	if r.rate > 0 {
		share = min(share, total/r.rate)
	}
	for _, g := range legs {
		part := share * room[g.site] / total
		dst[g.site] += part
		room[g.site] = max(0, room[g.site]-part*r.rate)
	}
	r.lost = max(0, r.lost-share)
}

// placeRest spreads what found no room anywhere in proportion to the limits:
// then all are equally overloaded.
func (w *work) placeRest(dst func(*row) []float64) {
	for i := range w.rows {
		r := &w.rows[i]
		if r.lost <= 0 {
			continue
		}
		w.splitInto(r, dst(r))
		r.lost = 0
	}
}

// splitInto adds what the row lost to dst in proportion to what open sites are
// made for; when that is zero everywhere, evenly over the sites in use.
func (w *work) splitInto(r *row, dst []float64) {
	measure := func(l int) float64 {
		if w.open(r, l) {
			return r.scope.spread[l]
		}
		return 0
	}
	total, n := 0.0, 0
	for l := range dst {
		total += measure(l)
		if r.scope.use[l] {
			n++
		}
	}
	for l := range dst {
		switch {
		case total > 0:
			dst[l] += r.lost * measure(l) / total
		case r.scope.use[l]:
			dst[l] += r.lost / float64(n)
		}
	}
}
