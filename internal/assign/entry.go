package assign

import (
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// settleMembers decides which sites are part of the row's priority 0: one
// enters at entryShare and leaves after exitTicks below exitShare. load is what
// all rows want and is kept up to date.
func (w *work) settleMembers(r *row, load []float64, decide bool) {
	bounded := w.mode == isobar.ModeBounded && r.scope.regular
	var before []float64
	if bounded {
		before = slices.Clone(r.want)
	}
	for l := range r.want {
		if w.usable(r, l) {
			w.exit(r, l, load, decide)
		}
	}
	w.enter(r, load)
	if bounded && shift(r.want, r.base) > max(w.maxShift, shift(before, r.base))+tiny {
		for l := range before {
			load[l] += r.rate * (before[l] - r.want[l])
		}
		copy(r.want, before)
	}
}

// exit keeps a site that should leave for some ticks, as far as it has room,
// then lets it go.
func (w *work) exit(r *row, l int, load []float64, decide bool) {
	if r.from[l] <= 0 || r.want[l] >= exitShare-tiny {
		r.below[l] = 0
		return
	}
	if decide {
		r.below[l]++
	}
	if r.below[l] < exitTicks {
		hold := min(r.from[l], exitShare)
		if w.ceilings && r.rate > 0 {
			// Holding on must not push others out of a site that is full.
			hold = min(hold, r.want[l]+max(0, w.view.limit[l]-load[l])/r.rate)
		}
		if hold <= r.want[l]+tiny {
			return
		}
		at := largest(r.want)
		if at == l || r.want[at] < hold {
			return
		}
		w.transfer(r, load, at, l, hold-r.want[l])
		r.note(ReasonExit, w.sites[l].Group.Locality, fmt.Sprintf("wanted below %.1f points for %d of %d ticks", 100*exitShare, r.below[l], exitTicks))
		return
	}
	if r.want[l] > 0 {
		w.absorb(r, l, load)
	}
}

func (w *work) transfer(r *row, load []float64, from, to int, share float64) {
	r.want[from] -= share
	r.want[to] += share
	load[from] -= r.rate * share
	load[to] += r.rate * share
}

// enter leaves out sites that are new to the row and too small, the smallest
// first, where the others have room for what they were to get.
func (w *work) enter(r *row, load []float64) {
	tried, at := 0.0, -1 // the candidates come in the order of share and site
	left, count, last := 0.0, 0, 0
	for range r.want {
		next := -1
		for l, v := range r.want {
			small := v > 0 && v < entryShare-tiny && r.from[l] <= 0 && !r.isProbe(l)
			if small && (v > tried || (v == tried && l > at)) && (next < 0 || v < r.want[next]) {
				next = l
			}
		}
		if next < 0 {
			break
		}
		tried, at = r.want[next], next
		if w.absorb(r, at, load) {
			left, count, last = left+tried, count+1, at
		}
	}
	if count > 0 {
		r.note(ReasonEntry, w.sites[last].Group.Locality,
			fmt.Sprintf("%.2f points for %d localities are below the entry threshold of %g each", 100*left, count, 100*entryShare))
	}
}

// absorb moves what the row wants of site l to the nearest sites that it uses
// anyway, and tells whether they had room for all of it; else nothing changes.
func (w *work) absorb(r *row, l int, load []float64) bool {
	space := func(k int) float64 {
		if k == l || !w.member(r, k) {
			return 0
		}
		if !w.ceilings || r.rate <= 0 {
			return math.Inf(1)
		}
		return max(0, w.view.limit[k]-load[k]) / r.rate
	}
	total := 0.0
	for k := range r.want {
		total += space(k)
	}
	if total < r.want[l] {
		return false
	}
	for range r.want {
		near := -1
		for k := range r.want {
			if space(k) > 0 && (near < 0 || r.dist[k] < r.dist[near] ||
				(r.dist[k] == r.dist[near] && r.want[k] > r.want[near])) {
				near = k
			}
		}
		if near < 0 || r.want[l] <= 0 {
			break
		}
		w.transfer(r, load, l, near, min(space(near), r.want[l]))
	}
	if r.want[l] < tiny {
		load[l] -= r.rate * r.want[l]
		r.want[l] = 0
	}
	return true
}
