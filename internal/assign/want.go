package assign

import (
	"fmt"

	"github.com/isobar-xds/isobar"
)

// sameCost is how much dearer a site may be, in ms, to count among the
// cheapest for a source without demand.
const sameCost = 1.0

// baseline is what plain locality failover does: the nearest site in use, ties
// together by their healthy endpoints. It knows nothing of load and capacity.
func (w *work) baseline(r *row) {
	near, found := 0.0, false
	for l := range w.sites {
		if w.open(r, l) && (!found || r.dist[l] < near) {
			near, found = r.dist[l], true
		}
	}
	if !found {
		return
	}
	w.splitNear(r, r.base, r.dist, near+sameDistance, r.scope.size)
}

// splitNear puts everything on the open sites whose cost is at most bound, in
// proportion to room, or, where none has room, to what they are made for.
func (w *work) splitNear(r *row, dst, cost []float64, bound float64, room []float64) {
	in := func(l int) bool { return w.open(r, l) && cost[l] <= bound }
	for _, measure := range [][]float64{room, r.scope.spread} {
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

// wantAll works out where the traffic of the sources with demand should go.
// Those that have a target come first; the others see what headroom is left.
func (w *work) wantAll() {
	for i := range w.rows {
		if r := &w.rows[i]; r.rate > 0 && !w.byHeadroom(r) {
			w.wantTarget(r)
		}
	}
	w.placeMissing()
	load := w.loads(wantOf)
	if !w.in.deciding() {
		// The others stay where they are.
		load = w.loads(fromOf)
		w.addFresh(load, wantOf)
	}
	room := w.rooms(load)
	for i := range w.rows {
		if r := &w.rows[i]; r.rate > 0 && w.byHeadroom(r) {
			w.wantHeadroom(r, room)
		}
	}
	for i := range w.rows {
		if r := &w.rows[i]; r.rate > 0 {
			w.shape(r)
		}
	}
	w.keepMost()
	for i := range w.rows {
		if r := &w.rows[i]; r.rate > 0 {
			w.addProbes(r)
		}
	}
}

// byHeadroom tells whether a row is answered from headroom: a client without a
// locality is at no distance from anywhere, and a source without a target has
// only prices to go by.
func (w *work) byHeadroom(r *row) bool {
	switch {
	case !r.scope.regular || w.mode == isobar.ModeObserve:
		return false
	case r.target != nil && (w.in.Service.Policy != isobar.PolicyLatency || w.in.Service.Prefers()):
		return false // policies know what to do with both
	}
	return r.src.Locality.IsZero() || (r.target == nil && w.priced())
}

func (w *work) priced() bool { return len(w.in.Prices) == len(w.sites) }

// wantTarget takes the solver's target; without one, what is there already when
// nothing is fit, or the baseline.
func (w *work) wantTarget(r *row) {
	switch {
	case !r.scope.regular && r.prev != nil && r.target == nil:
		copy(r.want, r.from)
	case r.target != nil && w.mode != isobar.ModeObserve:
		copy(r.want, r.target)
	default:
		copy(r.want, r.base)
		r.note(ReasonBaseline, isobar.Locality{}, w.whyBaseline())
	}
}

func (w *work) whyBaseline() string {
	if w.mode == isobar.ModeObserve {
		return "mode observe: the nearest healthy locality"
	}
	return "nothing was solved for this source: the nearest healthy locality"
}

// placeMissing completes targets of which a part went to sites that are no
// longer open.
func (w *work) placeMissing() {
	missing := false
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate <= 0 || r.target == nil || w.byHeadroom(r) || w.mode == isobar.ModeObserve {
			continue
		}
		if gap := 1 - sum(r.want); gap > tiny {
			r.lost, missing = gap, true
		}
	}
	if missing {
		w.placeNearest(wantOf, w.rooms(w.loads(wantOf)), w.open)
		w.placeRest(wantOf)
	}
}

// wantHeadroom answers a row from prices and headroom.
func (w *work) wantHeadroom(r *row, room []float64) {
	best := w.byCost(r, r.want, room)
	switch {
	case r.src.Locality.IsZero():
		r.note(ReasonNoDemand, isobar.Locality{}, "clients without a locality: by headroom alone")
	case !w.priced():
		r.note(ReasonBaseline, isobar.Locality{}, "the service has no demand: the nearest healthy locality")
	case r.rate > 0 && r.prev != nil && !w.in.deciding():
		// It stays where it is, and only what failed is moved.
	default:
		why := "no demand"
		if r.rate > 0 {
			why = "nothing was solved for this source yet"
		}
		r.note(ReasonNoDemand, isobar.Locality{}, fmt.Sprintf("%s: localities within %g ms of the cheapest (%.1f ms), by headroom", why, sameCost, best))
	}
}

// byCost splits a row over the sites that cost it least, by headroom, and tells
// what the cheapest costs, ms: any site for clients without a locality, the
// nearest without prices.
func (w *work) byCost(r *row, dst, room []float64) (best float64) {
	switch {
	case r.src.Locality.IsZero():
		w.splitNear(r, dst, r.dist, largestOf(r.dist), room)
		return 0
	case !w.priced():
		copy(dst, r.base)
		return 0
	}
	cost := make([]float64, len(w.sites))
	found := false
	for l := range cost {
		cost[l] = r.dist[l] + finite(w.in.Prices[l])
		if w.open(r, l) && (!found || cost[l] < best) {
			best, found = cost[l], true
		}
	}
	w.splitNear(r, dst, cost, best+sameCost, room)
	return best
}

func largestOf(v []float64) float64 {
	m := 0.0
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

// wantIdle is wantAll for a source without demand. Room is what the published
// shares of the others leave.
func (w *work) wantIdle(r *row, room []float64) {
	switch {
	case r.target != nil && w.mode != isobar.ModeObserve:
		addScaled(r.want, r.target, 1/sum(r.target))
	case !r.scope.regular && r.prev != nil:
		copy(r.want, r.from)
	case !r.scope.regular || w.mode == isobar.ModeObserve:
		copy(r.want, r.base)
		r.note(ReasonBaseline, isobar.Locality{}, w.whyBaseline())
	default:
		w.wantHeadroom(r, room)
	}
	w.shape(r)
	w.addProbes(r)
}

// shape bounds the want around the baseline in mode bounded.
func (w *work) shape(r *row) {
	if w.mode == isobar.ModeBounded && r.scope.regular {
		if away := shift(r.want, r.base); away > w.maxShift+tiny {
			back := w.maxShift / away
			for l := range r.want {
				r.want[l] = r.base[l] + back*(r.want[l]-r.base[l])
			}
			r.note(ReasonBounded, isobar.Locality{}, fmt.Sprintf("mode bounded: %.1f of %.1f points away from the nearest locality", 100*w.maxShift, 100*away))
		}
	}
}
