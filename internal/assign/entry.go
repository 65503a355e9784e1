package assign

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/isobar-xds/isobar"
)

// entry decides which sites are part of a source's priority 0, by where its shares are and
// where they should go: one enters at entryShare and leaves after exitTicks below exitShare.
type entry struct {
	*sourceState

	t     *terms
	from  []float64
	want  []float64 // changed
	below []int     // ticks below the exit threshold, changed
	load  []float64 // what all sources want of each site, kept up to date
}

// decideMembership decides whether the site belongs to priority 0; decide says that the
// time of a tick has passed.
func (e *entry) decideMembership(decide bool) {
	bounded := e.t.mode == isobar.ModeBounded && e.scope.regular
	var before []float64
	if bounded {
		before = slices.Clone(e.want)
	}
	for l := range e.want {
		if e.usable(l) {
			e.exit(l, decide)
		}
	}
	e.enter()
	if bounded && shift(e.want, e.base) > max(e.t.maxShift, shift(before, e.base))+tiny {
		for l := range before {
			e.load[l] += e.rate * (before[l] - e.want[l])
		}
		copy(e.want, before)
	}
}

// exit keeps a site that should leave for some ticks, as far as it has headroom,
// then lets it go. A site that clients choose by themselves stays.
func (e *entry) exit(l int, decide bool) {
	if e.from[l] <= 0 || e.want[l] >= exitShare-tiny {
		e.below[l] = 0
		return
	}
	if decide {
		e.below[l]++
	}
	chosen := e.isChosen(l)
	if e.below[l] < exitTicks || chosen {
		hold := min(e.from[l], exitShare)
		if e.t.ceilings && e.rate > 0 {
			// Holding on must not push others out of a site that is full.
			hold = min(hold, e.want[l]+max(0, e.t.view.limit[l]-e.load[l])/e.rate)
		}
		if chosen { // it may be full of the requests that it has anyway
			hold = max(hold, chosenShare)
		}
		if hold <= e.want[l]+tiny {
			return
		}
		at := largest(e.want)
		if at == l || e.want[at] < hold {
			return
		}
		e.transfer(at, l, hold-e.want[l])
		if chosen {
			e.note(ReasonExit, e.t.sites[l].Group.Locality, chosenText)
			return
		}
		e.note(ReasonExit, e.t.sites[l].Group.Locality,
			fmt.Sprintf("would get less than %.1f%% of the requests, for %d of %d decisions so far; then it gets none", 100*exitShare, e.below[l], exitTicks))
		return
	}
	if e.want[l] > 0 {
		e.absorb(l)
	}
}

const chosenText = "would get less, but clients send more there than planned: " +
	"if they choose among the listed localities by themselves, those requests would go to the others"

func (e *entry) transfer(from, to int, share float64) {
	e.want[from] -= share
	e.want[to] += share
	e.load[from] -= e.rate * share
	e.load[to] += e.rate * share
}

// entryText is the same for most sources of a tick, so that it is made once.
var entryText = fmt.Sprintf("localities that would get less than %g%% of the requests get none: ", 100*entryShare)

// enter leaves out sites that are new to the source and too small, the smallest
// first, where the others have headroom for what they were to get.
func (e *entry) enter() {
	tried, at := 0.0, -1 // the candidates come in the order of share and site
	left, count, last := 0.0, 0, 0
	for range e.want {
		next := -1
		for l, v := range e.want {
			small := v > 0 && v < entryShare-tiny && e.from[l] <= 0 && !e.isProbe(l)
			if small && (v > tried || (v == tried && l > at)) && (next < 0 || v < e.want[next]) {
				next = l
			}
		}
		if next < 0 {
			break
		}
		tried, at = e.want[next], next
		if e.absorb(at) {
			left, count, last = left+tried, count+1, at
		}
	}
	if count > 0 {
		e.note(ReasonEntry, e.t.sites[last].Group.Locality,
			entryText+strconv.Itoa(count)+", for which "+strconv.FormatFloat(100*left, 'f', 2, 64)+"% were meant")
	}
}

// absorb moves what the source wants of site l to the nearest sites that it uses anyway, and reports
// whether they had headroom for all of it; else nothing changes.
func (e *entry) absorb(l int) bool {
	space := func(k int) float64 {
		if k == l || !e.member(k, e.from, e.want) {
			return 0
		}
		if !e.t.ceilings || e.rate <= 0 {
			return math.Inf(1)
		}
		return max(0, e.t.view.limit[k]-e.load[k]) / e.rate
	}
	total := 0.0
	for k := range e.want {
		total += space(k)
	}
	if total < e.want[l] {
		return false
	}
	for range e.want {
		near := -1
		for k := range e.want {
			if space(k) > 0 && (near < 0 || e.dist[k] < e.dist[near] ||
				(e.dist[k] == e.dist[near] && e.want[k] > e.want[near])) {
				near = k
			}
		}
		if near < 0 || e.want[l] <= 0 {
			break
		}
		e.transfer(l, near, min(space(near), e.want[l]))
	}
	if e.want[l] < tiny {
		e.load[l] -= e.rate * e.want[l]
		e.want[l] = 0
	}
	return true
}
