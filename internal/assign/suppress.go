package assign

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// suppress keeps what is published for the sources whose shares should move by
// less than a point, as long as no site's load changes much by that. It looks
// at where the shares are heading, not at the step of this tick: so small steps
// on a long way are published, and small moves add up until they count.
func (w *work) suppress(load, caps []float64) {
	if !w.mayStay(load) {
		return
	}
	kept := make([]float64, len(w.sites)) // change of load that is not made
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate > 0 && w.quiet(r) && w.keeps(r, load, caps, kept) {
			w.stay(r, load)
		}
	}
}

// mayStay is false when small moves were kept back for long enough while a site
// is above its limit that they would relieve.
func (w *work) mayStay(load []float64) bool {
	if !w.ceilings || w.in.Previous == nil {
		return true
	}
	published := w.loads(publishedOf)
	for l, m := range w.match {
		if m >= 0 && m < len(w.in.Previous.Over) && w.in.Previous.Over[m] >= overTicks-1 &&
			w.overLimit(l, published) && load[l] < published[l] {
			return false
		}
	}
	return true
}

// quiet tells whether nothing of note is to happen to a row.
func (w *work) quiet(r *row) bool {
	if r.prev == nil || r.moved {
		return false
	}
	for l := range r.old {
		if math.Abs(r.want[l]-r.old[l]) >= quietShare {
			return false
		}
		if (r.old[l] > 0) != (r.units[l] > 0) {
			return false
		}
	}
	return true
}

// keeps tells whether the loads allow the row to stay, and counts its change.
func (w *work) keeps(r *row, load, caps, kept []float64) bool {
	for l := range r.old {
		change := kept[l] + r.rate*(r.want[l]-r.old[l])
		if k := w.sites[l].Capacity; k > 0 && math.Abs(change) >= quietLoad*k {
			return false
		}
		back := r.rate * (r.old[l] - unit*float64(r.units[l]))
		if caps != nil && back > 0 && load[l]+back > caps[l]*slackFactor {
			return false
		}
	}
	for l := range r.old {
		kept[l] += r.rate * (r.want[l] - r.old[l])
	}
	return true
}

// stay puts the published units back.
func (w *work) stay(r *row, load []float64) {
	changed := false
	for l, v := range r.old {
		u := int(math.Round(v / unit))
		if u != r.units[l] {
			changed = true
			load[l] += r.rate * unit * float64(u-r.units[l])
			r.units[l] = u
		}
	}
	if changed {
		r.note(ReasonSuppressed, isobar.Locality{}, "less than 1 point from where it should be: not published")
	}
}

// countOver counts the ticks for which suppression left sites above their limit.
func (w *work) countOver(load []float64) []int {
	over := make([]int, len(w.sites))
	if !w.ceilings {
		return over
	}
	want := w.loads(wantOf)
	for l, m := range w.match {
		before := 0
		if w.in.Previous != nil && m >= 0 && m < len(w.in.Previous.Over) {
			before = w.in.Previous.Over[m]
		}
		switch {
		case !w.overLimit(l, load) || want[l] >= load[l]:
		case w.in.deciding():
			over[l] = min(before+1, overTicks)
		default:
			over[l] = before
		}
	}
	return over
}
