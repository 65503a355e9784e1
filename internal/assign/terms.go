package assign

import (
	"fmt"
	"math"

	"github.com/isobar-xds/isobar"
)

// Thresholds of section "entry and exit" and of suppression, as fractions.
const (
	point       = 0.01
	unit        = 1.0 / isobar.WeightScale
	entryShare  = 1 * point   // a site enters priority 0 at this share
	exitShare   = 0.5 * point // and leaves below this
	exitTicks   = 3           // after so many ticks
	chosenShare = 0.1 * point // kept of a site that clients choose by themselves
	stepShare   = 10 * point  // moves per tick
	reliefShare = 30 * point  // moves per tick that relieve a site over its limit
	quietShare  = 1 * point   // smaller moves are not published
	quietLoad   = 0.02        // unless a site's load changes by this fraction of its capacity
	overTicks   = 3           // nor longer than this while a site stays above its limit
	overShare   = 0.005       // by more than this fraction of it: less is the noise of measuring
	leastEntry  = point / 10  // a smaller share alone is no reason to publish: full sites leave such shares over by the noise of measuring
	tiny        = 1e-9
	slackFactor = 1 + 1e-6 // limits are compared with this tolerance
)

// terms are what holds for all sources of a service in one decision. Nothing in them
// changes once they are made.
type terms struct {
	in       *Input
	sites    []Site
	view     view
	mode     isobar.Mode
	maxShift float64            // fraction
	match    []int              // per site: its index in the previous result
	drop     float64            // of all requests
	classes  *isobar.ClassDrops // nil where all clients drop the same
	// ceilings says that limits bind: mode full, with fit sites, and a policy
	// that uses them.
	ceilings    bool
	ignoresLoad bool // the policy does not look at load
}

func newTerms(in *Input, drop float64, classes *isobar.ClassDrops) *terms {
	t := &terms{in: in, sites: in.Sites, mode: in.Service.Mode, maxShift: maxShift(in.Service.MaxShift), drop: drop, classes: classes}
	t.view = viewOf(in.Sites, nil)
	t.ignoresLoad = in.Service.Policy.IgnoresLoad()
	t.ceilings = t.mode == isobar.ModeFull && t.view.regular && !t.ignoresLoad
	var before []Site
	if in.Previous != nil {
		before = in.Previous.Sites
	}
	t.match = matchSites(in.Sites, before)
	if in.Previous != nil {
		reuseGroups(t.view.groups, in.Previous.Groups, t.match)
	}
	return t
}

func maxShift(points float64) float64 {
	if !(points > 0) {
		points = isobar.DefaultMaxShift
	}
	return min(1, points*point)
}

// full is the load with which each site takes no more than its limit. Load above that counts in
// its cap, for it leaves step by step; but it is no headroom, or the leaving load would return to
// its origin. nil where no ceilings bind.
func (t *terms) full() []float64 {
	if !t.ceilings {
		return nil
	}
	return t.view.limit
}

// headrooms returns the remainder of each site's limit under the given loads.
func (t *terms) headrooms(load []float64) []float64 {
	headroom := make([]float64, len(load))
	for i := range load {
		if t.view.use[i] {
			headroom[i] = max(0, t.view.limit[i]-load[i])
		}
	}
	return headroom
}

// overLimit reports whether a site carries more than its limit, where limits bind.
func (t *terms) overLimit(l int, load []float64) bool {
	return t.ceilings && t.view.use[l] && load[l] > t.view.limit[l]*slackFactor+tiny
}

// priced reports whether there are prices to go by.
func (t *terms) priced() bool { return len(t.in.Prices) == len(t.sites) }

// dropOf is the part of a source's requests that its clients drop.
func (t *terms) dropOf(s *Source) float64 {
	if t.classes == nil {
		return t.drop
	}
	return s.Mix.Dropped(&t.classes.Drops)
}

// usualDrop is what clients drop of which nothing is said.
func (t *terms) usualDrop() float64 {
	if t.classes == nil {
		return t.drop
	}
	return t.classes.Drops[isobar.ClassCritical]
}

// shares are, per source and site, the part of the source's traffic that goes there.
type shares = grid[float64]

func newShares(sources, sites int) shares { return newGrid[float64](sources, sites) }

// grid has a value per source and site, in one block of memory.
type grid[T any] struct {
	cells []T
	sites int
}

func newGrid[T any](sources, sites int) grid[T] {
	return grid[T]{cells: make([]T, sources*sites), sites: sites}
}

// of returns the values of the source at i.
func (g grid[T]) of(i int) []T { return g.cells[i*g.sites : (i+1)*g.sites : (i+1)*g.sites] }

// loads sums what the sources send to each site, requests/s.
func (t *terms) loads(sources []sourceState, s shares) []float64 {
	sum := make([]float64, len(t.sites))
	loadsInto(sum, sources, s)
	return sum
}

func loadsInto(sum []float64, sources []sourceState, s shares) {
	clear(sum)
	for i := range sources {
		sources[i].addTo(sum, s.of(i))
	}
}

// shift is the share that differs between a and b: half the sum of the absolute
// differences.
func shift(a, b []float64) float64 {
	d := 0.0
	for i := range a {
		d += math.Abs(a[i] - b[i])
	}
	return d / 2
}

func sum(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s
}

// addScaled adds f times v to dst.
func addScaled(dst, v []float64, f float64) {
	for i := range dst {
		dst[i] += f * v[i]
	}
}

// largest returns the index of the largest value, the first of equals.
func largest(v []float64) int {
	at := 0
	for i := range v {
		if v[i] > v[at] {
			at = i
		}
	}
	return at
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return max(0, v)
}

// explain adds the reasons that depend on what came out.
func explain(t *terms, s *sourceState, from, want, shares []float64) {
	none := isobar.Locality{}
	if t.in.Hold != "" {
		s.note(ReasonHold, none, "weights are held: "+t.in.Hold)
	}
	if t.in.Slow != "" && t.in.deciding() {
		s.note(ReasonSlow, none, t.in.Slow)
	}
	if t.in.Refused != "" {
		s.note(ReasonFallback, none, "the previous assignment stays in force, because the check refused the new plan: "+t.in.Refused)
	}
	if s.scope.failOpen {
		s.note(ReasonFailOpen, none, "no endpoint is healthy: all are used as if they were")
	}
	if t.in.deciding() && s.prev != nil {
		explainPace(t, s, from, want, shares)
	}
	scale := 1.0
	for l := range shares {
		if shares[l] > 0 {
			scale = max(scale, t.sites[l].Scale)
		}
	}
	if scale > slackFactor && t.ceilings && s.rate > 0 {
		s.note(ReasonOverflow, none, fmt.Sprintf("demand exceeds the ceilings: Isobar raises them by %.1f%%", 100*(scale-1)))
	}
	if t.drop > 0 {
		s.note(ReasonShed, none, t.whyShed())
	}
}

// explainPace returns how much of the way was gone.
func explainPace(t *terms, s *sourceState, from, want, shares []float64) {
	total, gone := shift(from, want), shift(from, shares)
	if total-gone < quietShare || gone < unit/2 {
		return
	}
	to := 0
	for l := range shares {
		if shares[l]-from[l] > shares[to]-from[to] {
			to = l
		}
	}
	at := t.sites[to].Group.Locality
	if g := t.in.Gain; g > 0 && g < 1 {
		s.note(ReasonDamped, at,
			fmt.Sprintf("%.1f%% of the requests moved toward %s, and %.1f%% are still to move, because %s", 100*gone, at, 100*(total-gone), t.in.Damp))
		return
	}
	s.note(ReasonPaced, at,
		fmt.Sprintf("%.1f%% of the requests moved toward %s, and the next decisions move another %.1f%%", 100*gone, at, 100*(total-gone)))
}

// whyShed tells who drops how much.
func (t *terms) whyShed() string {
	text := fmt.Sprintf("%.2f%% of requests are dropped at the clients", 100*t.drop)
	if t.classes == nil {
		return text
	}
	for c := isobar.Classes - 1; c >= 0; c-- {
		if d := t.classes.Drops[c]; d > 0 {
			text += fmt.Sprintf("; %.2f%% of those of %s ones", 100*d, isobar.Class(c))
		}
	}
	return text
}
