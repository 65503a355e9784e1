package assign

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// full is the load with which each site takes no more than it has: its limit.
// What one carries above that counts in its cap, for it leaves step by step; but
// it is no room, or what leaves would find its place where it came from. nil
// where no ceilings bind.
func (w *work) full() []float64 {
	if !w.ceilings {
		return nil
	}
	return w.view.limit
}

// round turns the shares of the sources with demand into units that sum to
// WeightScale, by largest remainders, but gives a unit only to a site that stays
// below its limit as long as there is one. full is nil where no ceilings bind.
func (w *work) round(load, full []float64) {
	for i := range w.rows {
		if w.rows[i].rate > 0 {
			w.rows[i].floor(load)
		}
	}
	for i := range w.rows {
		if w.rows[i].rate > 0 {
			w.rows[i].topUp(load, full)
		}
	}
}

// floor rounds down and adds what that makes to the load.
func (r *row) floor(load []float64) {
	if len(r.units) == 0 {
		return
	}
	for l, v := range r.next {
		r.units[l] = max(0, int(math.Floor(v/unit+1e-6))) // what the steps before leave may be -1e-10 for 0
		load[l] += r.rate * unit * float64(r.units[l])
	}
}

// topUp hands out what rounding down left.
func (r *row) topUp(load, full []float64) {
	left := isobar.WeightScale
	for _, u := range r.units {
		left -= u
	}
	if left <= 0 || left > isobar.WeightScale-1 && sum(r.next) <= tiny {
		return // nothing to do, or nowhere to go
	}
	step := r.rate * unit
	given := make([]bool, len(r.units))
	for range left {
		at := r.bestRemainder(load, full, given, step)
		if at < 0 {
			clear(given)
			if at = r.bestRemainder(load, full, given, step); at < 0 {
				at = r.leastExcess(load, full, step)
			}
		}
		if at < 0 {
			at = largest(r.next)
		}
		given[at] = true
		r.units[at]++
		load[at] += step
	}
}

// bestRemainder finds the site that rounding down cut most, among those that
// have room for one more unit.
func (r *row) bestRemainder(load, full []float64, given []bool, step float64) int {
	at, most := -1, 0.0
	for l, v := range r.next {
		if given[l] || v < unit || r.isProbe(l) || (full != nil && load[l]+step > full[l]) {
			continue
		}
		if rest := v/unit - float64(r.units[l]); at < 0 || rest > most+tiny {
			at, most = l, rest
		}
	}
	return at
}

// leastExcess finds where one more unit goes when every site is full:
// among those that rounding down cut, where it does least relative to the limit.
func (r *row) leastExcess(load, full []float64, step float64) int {
	at, least := -1, 0.0
	for l, v := range r.next {
		if v < unit || r.isProbe(l) || v/unit-float64(r.units[l]) <= tiny {
			continue
		}
		excess := 0.0
		if full != nil {
			excess = (load[l] + step) / max(tiny, full[l])
		}
		if at < 0 || excess < least {
			at, least = l, excess
		}
	}
	return at
}
