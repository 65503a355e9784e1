package assign

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
)

// carry brings the published shares over to today's sites and health: what
// vanished, unhealthy or barred sites had goes to the nearest headroom at
// once; a site that came back gets nothing yet; a site that lost endpoints
// keeps its share unless that takes it above its limit.
func (w *work) carry() {
	lost := false
	for i := range w.rows {
		r := &w.rows[i]
		if r.prev == nil {
			continue
		}
		w.keepOpen(r)
		lost = lost || r.moved
	}
	if lost {
		w.replace()
	}
	if w.ceilings {
		w.relieveShrunk()
	}
}

// keepOpen keeps the shares of sites that are still open to the row, and frees
// the rest.
func (w *work) keepOpen(r *row) {
	kept := 0.0
	worst, at := 0.0, -1
	for l, v := range r.old {
		keep := v
		switch {
		case r.isProbe(l):
			keep = min(v, r.probe)
		case !r.scope.use[l]:
			keep = 0
		}
		if v-keep > worst {
			worst, at = v-keep, l
		}
		r.from[l] = keep
		kept += keep
	}
	r.lost = max(0, 1-kept)
	if r.lost <= tiny {
		r.lost = 0
		return
	}
	r.moved = true
	r.noteLost(w, at)
}

func (r *row) noteLost(w *work, at int) {
	if at < 0 {
		r.note(ReasonUnhealthy, isobar.Locality{}, fmt.Sprintf("%.1f points moved off localities that are gone", 100*r.lost))
		return
	}
	l := w.sites[at].Group.Locality
	code, why := ReasonUnhealthy, "it takes no traffic"
	switch {
	case r.isForbidden(at):
		code, why = ReasonForbidden, "it is not allowed for this source"
	case r.isBarred(at) && r.scope.use[at]:
		code, why = ReasonBarred, "requests from here do not arrive there"
	case w.sites[at].Unreachable:
		why = "observed unreachable"
	case !w.sites[at].Usable():
		why = "no healthy endpoint"
	}
	r.note(code, l, fmt.Sprintf("%.1f points moved off %s: %s", 100*r.lost, l, why))
}

// replace finds a place for what failures set free.
func (w *work) replace() {
	for i := range w.rows {
		r := &w.rows[i]
		if r.lost > 0 && (w.mode == isobar.ModeObserve || !r.scope.regular || w.ignoresLoad) {
			to := r.base
			if w.ignoresLoad && w.mode == isobar.ModeFull && r.target != nil {
				to = r.target
			}
			if all := sum(to); all > 0 {
				addScaled(r.from, to, r.lost/all)
			}
			r.lost = 0
		}
	}
	if w.mode == isobar.ModeBounded {
		w.replaceBounded()
		return
	}
	w.placeNearest(fromOf, w.spare(w.loads(fromOf)), w.open)
	w.placeRest(fromOf)
}

// spare gives what is left of each site's limit under the given load of the
// sources that have an answer, when those that are new have taken what they are
// going to get.
func (w *work) spare(load []float64) []float64 {
	taken, room := slices.Clone(load), w.rooms(load)
	w.addFresh(taken, func(r *row) []float64 {
		switch {
		case w.byHeadroom(r):
			guess := make([]float64, len(w.sites))
			w.byCost(r, guess, room)
			return guess
		case r.target != nil && w.mode != isobar.ModeObserve:
			return r.target
		default:
			return r.base
		}
	})
	return w.rooms(taken)
}

// addFresh adds to load what the sources without an answer send by the given
// shares.
func (w *work) addFresh(load []float64, shares func(*row) []float64) {
	for i := range w.rows {
		if r := &w.rows[i]; r.prev == nil && r.rate > 0 {
			for l, v := range shares(r) {
				load[l] += r.rate * v
			}
		}
	}
}

// replaceBounded places by nearest headroom as far as the bound around the
// baseline allows, and the rest as the baseline does.
func (w *work) replaceBounded() {
	free := make([]float64, len(w.rows))
	kept := make([][]float64, len(w.rows))
	for i := range w.rows {
		free[i] = w.rows[i].lost
		if free[i] > 0 {
			kept[i] = append([]float64(nil), w.rows[i].from...)
		}
	}
	w.placeNearest(fromOf, w.spare(w.loads(fromOf)), w.open)
	w.placeRest(fromOf)
	for i := range w.rows {
		if free[i] <= 0 {
			continue
		}
		r := &w.rows[i]
		addScaled(kept[i], r.base, free[i])
		// The shift is convex along the line between the two placements.
		away, home := shift(r.from, r.base), shift(kept[i], r.base)
		if away <= w.maxShift || away <= home {
			continue
		}
		back := min(1, (away-w.maxShift)/(away-home))
		for l := range r.from {
			r.from[l] += back * (kept[i][l] - r.from[l])
		}
	}
}

func addScaled(dst, v []float64, f float64) {
	for i := range dst {
		dst[i] += f * v[i]
	}
}

// relieveShrunk moves away at once what a site can no longer carry because it
// lost endpoints, as far as there is headroom elsewhere. What was too much
// before the loss is left to pacing.
func (w *work) relieveShrunk() {
	load := w.loads(fromOf)
	excess := make([]float64, len(w.sites)) // fraction of the load to move
	some := false
	for l := range w.sites {
		if m := w.match[l]; m >= 0 && w.view.use[l] && lostEndpoints(&w.sites[l], &w.in.Previous.Sites[m]) {
			fitted := min(load[l], w.in.Previous.Sites[m].Limit())
			if over := fitted - w.view.limit[l]; over > tiny*max(1, load[l]) {
				excess[l], some = over/load[l], true
			}
		}
	}
	if !some {
		return
	}
	room := w.spare(load)
	for l := range room {
		if excess[l] > 0 {
			room[l] = 0
		}
	}
	origin := make([][]float64, len(w.rows))
	for i := range w.rows {
		origin[i] = w.rows[i].release(excess)
	}
	w.placeNearest(fromOf, room, w.open)
	for i := range w.rows {
		w.rows[i].settle(w, origin[i])
	}
}

func lostEndpoints(now, before *Site) bool {
	return now.Capacity < before.Capacity && now.Group.Usable() < before.Group.Usable()
}

// release frees a fraction of the row's share on each site, and tells how much.
func (r *row) release(fraction []float64) []float64 {
	if r.prev == nil || r.rate <= 0 {
		return nil
	}
	freed := make([]float64, len(fraction))
	for l, f := range fraction {
		freed[l] = f * r.from[l]
		r.from[l] -= freed[l]
		r.lost += freed[l]
	}
	return freed
}

// settle gives back to its origin what found no room.
func (r *row) settle(w *work, freed []float64) {
	if freed == nil {
		return
	}
	total := sum(freed)
	left := r.lost
	r.lost = 0
	if total <= tiny {
		addScaled(r.from, freed, 1)
		return
	}
	addScaled(r.from, freed, left/total)
	if total-left > unit {
		r.moved = true
		at := largest(freed)
		l := w.sites[at].Group.Locality
		r.note(ReasonUnhealthy, l, fmt.Sprintf("%.1f points moved off %s: it lost endpoints and is above its limit", 100*(total-left), l))
	}
}

// largest gives the index of the largest value, the first of equals.
func largest(v []float64) int {
	at := 0
	for i := range v {
		if v[i] > v[at] {
			at = i
		}
	}
	return at
}

func (r *row) note(code ReasonCode, l isobar.Locality, text string) {
	r.notes = append(r.notes, Reason{Code: code, Locality: l, Text: text})
}
