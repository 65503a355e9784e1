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
	quiet := make([]bool, len(w.rows))
	some := false
	for i := range w.rows {
		r := &w.rows[i]
		quiet[i] = r.rate > 0 && w.quiet(r)
		some = some || quiet[i]
	}
	if !some || !w.agree(quiet, load, caps) {
		return
	}
	for i := range w.rows {
		if quiet[i] {
			w.stay(&w.rows[i], load)
		}
	}
}

// agree finds which of the quiet rows can stay together. It looks at all of them
// at once: where rows were to swap places on sites that are full, none could
// stay if the other did not.
func (w *work) agree(quiet []bool, load, caps []float64) bool {
	y, change := make([]float64, len(w.sites)), make([]float64, len(w.sites))
	for range 4*len(w.sites) + 8 {
		copy(y, load)
		clear(change)
		for i := range w.rows {
			r := &w.rows[i]
			for l := 0; quiet[i] && l < len(y); l++ {
				y[l] += r.back(l)
				change[l] += r.rate * (r.want[l] - r.old[l])
			}
		}
		at := w.disturbed(load, y, change, caps)
		if at < 0 {
			return true
		}
		tooMuch := func(r *row) float64 { return r.rate * math.Abs(r.want[at]-r.old[at]) }
		excess := math.Abs(change[at]) - quietLoad*w.sites[at].Capacity
		if overfull(at, load, y, caps) {
			tooMuch, excess = func(r *row) float64 { return r.back(at) }, y[at]-caps[at]
		}
		for i := range w.rows {
			if t := tooMuch(&w.rows[i]); quiet[i] && t > 0 && excess >= 0 {
				quiet[i] = false
				excess -= t
			}
		}
	}
	return false
}

// disturbed finds a site that carries too much, or whose load should change too
// much, for the quiet rows to stay; -1 when there is none.
func (w *work) disturbed(load, y, change, caps []float64) int {
	for l := range w.sites {
		if k := w.sites[l].Capacity; k > 0 && math.Abs(change[l]) >= quietLoad*k {
			return l
		}
		if overfull(l, load, y, caps) {
			return l
		}
	}
	return -1
}

// overfull tells whether a site carries too much because rows stay.
func overfull(l int, load, y, caps []float64) bool {
	return caps != nil && y[l] > caps[l]*slackFactor && y[l] > load[l]
}

// back is what a row sends more to a site if it stays.
func (r *row) back(l int) float64 { return r.rate * (r.old[l] - unit*float64(r.units[l])) }

// mayStay is false when small moves were kept back for long enough while a site
// is above its limit that they would relieve.
func (w *work) mayStay(load []float64) bool {
	if !w.ceilings || w.in.Previous == nil {
		return true
	}
	published := w.loads(publishedOf)
	for l, m := range w.match {
		if m >= 0 && m < len(w.in.Previous.Over) && w.in.Previous.Over[m] >= overTicks-1 &&
			w.wellOver(l, published) && load[l] < published[l] {
			return false
		}
	}
	return true
}

// wellOver tells whether a site is so far above its limit that it should not
// stay there for the sake of quiet.
func (w *work) wellOver(l int, load []float64) bool {
	return w.overLimit(l, load) && load[l] > w.view.limit[l]*(1+overShare)
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
		case !w.wellOver(l, load) || want[l] >= load[l]:
		case w.in.deciding():
			over[l] = min(before+1, overTicks)
		default:
			over[l] = before
		}
	}
	return over
}
