package assign

import (
	"fmt"
	"math"
)

// What is decided for each row alone can end a little beside the rules once all
// rows are together: what follows puts that right as far as there is room.

// settleEntries takes back what would enter below the threshold, because the
// step was cut or the want is that small, if the other sites of the row have
// room for it. full is nil where no ceilings bind.
func (w *work) settleEntries(full []float64) {
	load := w.loads(nextOf)
	for i := range w.rows {
		if r := &w.rows[i]; r.rate > 0 {
			w.settleEntry(r, load, full)
		}
	}
}

func (w *work) settleEntry(r *row, load, full []float64) {
	left, count, last := 0.0, 0, 0
	for l, v := range r.next {
		if !w.entersSmall(r, l) {
			continue
		}
		if !w.takeBack(r, l, load, full) {
			left, count, last = left+v, count+1, l
		}
	}
	if count > 0 {
		r.note(ReasonFull, w.sites[last].Group.Locality,
			fmt.Sprintf("%.2f points enter %d localities, less than %g each: those in use have no room for it", 100*left, count, 100*entryShare))
	}
}

func (w *work) entersSmall(r *row, l int) bool {
	return r.next[l] > 0 && r.next[l] < entryShare-tiny && r.old[l] <= 0 && (r.prev == nil || r.from[l] <= 0) && !r.isProbe(l)
}

// takeBack spreads what a row would send to site l over its other sites, first
// to those that it is leaving, then to the nearest. It tells whether there was
// room; else nothing changes.
func (w *work) takeBack(r *row, l int, load, full []float64) bool {
	space := func(k int) float64 {
		switch {
		case k == l || r.next[k] <= 0 || !w.open(r, k) || w.entersSmall(r, k):
			return 0
		case full == nil || r.rate <= 0:
			return math.Inf(1)
		default:
			return max(0, full[k]-load[k]) / r.rate
		}
	}
	total := 0.0
	for k := range r.next {
		total += space(k)
	}
	if total < r.next[l] {
		return false
	}
	for range 2 * len(r.next) {
		to, part := -1, 0.0
		for k := range r.next {
			s := space(k)
			leaving := r.from[k] - r.next[k]
			if s <= 0 || (leaving <= 0 && part > 0) {
				continue
			}
			if to < 0 || (leaving > 0 && part <= 0) || r.dist[k] < r.dist[to] {
				to, part = k, max(0, leaving)
			}
		}
		if to < 0 || r.next[l] <= 0 {
			break
		}
		share := min(space(to), r.next[l])
		if part > 0 {
			share = min(share, part)
		}
		r.next[l] -= share
		r.next[to] += share
		load[l] -= r.rate * share
		load[to] += r.rate * share
	}
	if r.next[l] < tiny {
		load[l] -= r.rate * r.next[l]
		r.next[l] = 0
	}
	return true
}

// settleUnits moves units that rounding put above a cap to sites where staying
// rows have left room since.
func (w *work) settleUnits(load, caps, full []float64) {
	if caps == nil {
		return
	}
	for range 4*len(w.sites) + 8 {
		moved := false
		for l := range load {
			for i := 0; i < len(w.rows) && load[l] > caps[l]; i++ {
				moved = w.moveUnit(&w.rows[i], l, load, caps, full) || moved
			}
		}
		if !moved {
			return
		}
	}
}

// moveUnit moves one unit by which a row lifts site l above its cap to another
// of its sites.
func (w *work) moveUnit(r *row, l int, load, caps, full []float64) bool {
	step := r.rate * unit
	if step < load[l]-caps[l] || step <= 0 || r.isProbe(l) || r.units[l] < 2 || float64(r.units[l])*unit <= r.old[l]+unit/2 {
		return false
	}
	to := -1
	for k := range full {
		if k != l && r.units[k] > 0 && w.open(r, k) && load[k]+step <= full[k] && (to < 0 || full[k]-load[k] > full[to]-load[to]) {
			to = k
		}
	}
	if to < 0 {
		return false
	}
	r.units[l]--
	r.units[to]++
	load[l] -= step
	load[to] += step
	return true
}
