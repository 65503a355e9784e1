package assign

import (
	"fmt"
	"math"

	"github.com/isobar-xds/isobar"
)

// keepMost cuts what rows want to the most that they may get of each site. What
// that frees stays where it is, as far as there is room, else it goes to the
// nearest sites with room that are not bounded.
func (w *work) keepMost() {
	if w.mode != isobar.ModeFull {
		return
	}
	some := false
	for i := range w.rows {
		if r := &w.rows[i]; r.rate > 0 && w.cut(r) {
			some = true
		}
	}
	if !some {
		return
	}
	room := w.rooms(w.loads(wantOf))
	for i := range w.rows {
		w.keepBack(&w.rows[i], room)
	}
	w.placeNearest(wantOf, room, w.unbounded)
	for i := range w.rows {
		r := &w.rows[i]
		w.keepBack(r, nil)
		if r.lost > 0 { // nothing else is left
			for l := range r.want {
				r.want[l] += r.cut[l] * r.lost / sum(r.cut)
			}
			r.lost = 0
		}
	}
}

// mostOf is the largest share of site l that a row may get.
func (r *row) mostOf(l int) float64 {
	if len(r.src.Most) != len(r.want) || r.prev == nil {
		return 1
	}
	return r.src.Most[l]
}

// unbounded reports whether a row may put however much on site l.
func (w *work) unbounded(r *row, l int) bool {
	return w.open(r, l) && (w.mode != isobar.ModeFull || r.mostOf(l) >= 1)
}

// cut takes off what is above the most, and reports whether anything was.
func (w *work) cut(r *row) bool {
	for l := range r.want {
		most := r.mostOf(l)
		if r.want[l] <= most+tiny || !w.open(r, l) {
			continue
		}
		if r.cut == nil {
			r.cut = make([]float64, len(r.want))
		}
		r.cut[l] = r.want[l] - most
		r.lost += r.cut[l]
		r.note(ReasonHeld, w.sites[l].Group.Locality, r.whyHeld(l, most))
		r.want[l] = most
	}
	return r.cut != nil
}

func (r *row) whyHeld(l int, most float64) string {
	if r.isBack(l) {
		return fmt.Sprintf("works again: up to %.0f%% of the traffic from here for now", 100*most)
	}
	return "a larger part of the requests there fails than before: no share of it rises"
}

// isBack reports whether the row's share of site l comes back after an outage.
func (r *row) isBack(l int) bool { return l < len(r.src.Back) && r.src.Back[l] }

// keepBack leaves what was cut on the sites that the row would leave for it, up to
// their room; nil = however much it is.
func (w *work) keepBack(r *row, room []float64) {
	if r.cut == nil || r.prev == nil {
		return
	}
	for range 2 {
		leaving := 0.0
		stays := func(l int) float64 {
			if !w.usable(r, l) {
				return 0
			}
			d := max(0, r.from[l]-r.want[l])
			if room != nil && w.ceilings && r.rate > 0 {
				d = min(d, room[l]/r.rate)
			}
			return d
		}
		for l := range r.want {
			leaving += stays(l)
		}
		if r.lost <= tiny || leaving <= tiny {
			return
		}
		part := min(1, r.lost/leaving)
		freed := r.lost
		for l := range r.want {
			d := part * stays(l)
			r.want[l] += d
			freed -= d
			if room != nil {
				room[l] = math.Max(0, room[l]-d*r.rate)
			}
		}
		r.lost = math.Max(0, freed)
	}
}

// comesBack is the share that a row may move at once, because localities that
// failed work again.
func (w *work) comesBack(r *row) float64 {
	sum := 0.0
	if r.prev == nil || r.rate <= 0 || w.mode != isobar.ModeFull {
		return sum
	}
	for l := range r.want {
		if r.isBack(l) {
			sum += max(0, min(r.want[l], r.mostOf(l))-r.from[l])
		}
	}
	return sum
}
