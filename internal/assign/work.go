package assign

import (
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
	stepShare   = 10 * point  // moves per tick
	reliefShare = 30 * point  // moves per tick that relieve a site over its limit
	quietShare  = 1 * point   // smaller moves are not published
	quietLoad   = 0.02        // unless a site's load changes by this fraction of its capacity
	overTicks   = 3           // nor longer than this while a site stays above its limit
	overShare   = 0.005       // by more than this fraction of it: less is the noise of measuring
	tiny        = 1e-9
	slackFactor = 1 + 1e-6 // limits are compared with this tolerance
)

// work is one service while it is being assigned.
type work struct {
	in       *Input
	sites    []Site
	view     view
	mode     isobar.Mode
	maxShift float64 // fraction
	match    []int   // per site: its index in the previous result
	drop     float64
	classes  *isobar.ClassDrops // nil where all clients drop the same
	rows     []row
	scopes   []scope // of rows that may not use all sites
	// ceilings says that limits bind: mode full, with fit sites, and a policy
	// that uses them.
	ceilings    bool
	ignoresLoad bool      // the policy does not look at load
	load        []float64 // per site, of the units that are published
}

// row is one source.
type row struct {
	src    *Source
	prev   *SourceResult // nil for a source that had no answer yet
	was    *isobar.Assignment
	rate   float64   // requests/s after drops
	dist   []float64 // per site, ms
	target []float64 // the solver's shares on sites in use, summing to 1; nil without
	scope  *view     // the sites as far as the row may know of them
	barred []bool    // nil = none
	idle   []bool    // fit, but for failover only; nil = none
	probes []bool    // sites that get no more than a probe; nil = none
	probe  float64   // how much that is, for each
	old    []float64 // published shares on today's sites
	from   []float64 // old, after what was lost to failures found its place
	base   []float64 // the baseline
	want   []float64 // where it should go
	pace   []float64 // the step of this tick if nobody else moved
	next   []float64 // what comes out
	units  []int
	below  []int
	lost   float64   // share that failures set free
	cut    []float64 // what was cut off the want, per site; nil = nothing
	moved  bool      // failures changed the shares
	notes  []Reason
}

func newWork(in *Input) *work {
	w := &work{in: in, sites: in.Sites, mode: in.Service.Mode, maxShift: maxShift(in.Service.MaxShift)}
	w.view = viewOf(in.Sites, nil)
	w.ignoresLoad = in.Service.Policy.IgnoresLoad()
	w.ceilings = w.mode == isobar.ModeFull && w.view.regular && !w.ignoresLoad
	var before []Site
	if in.Previous != nil {
		before = in.Previous.Sites
	}
	w.match = matchSites(in.Sites, before)
	if in.Previous != nil {
		reuseGroups(w.view.groups, in.Previous.Groups, w.match)
	}
	return w
}

func maxShift(points float64) float64 {
	if !(points > 0) {
		points = isobar.DefaultMaxShift
	}
	return min(1, points*point)
}

// addRows prepares one row per source.
func (w *work) addRows(sources []Source) {
	n, l := len(sources), len(w.sites)
	w.rows = make([]row, n)
	// What the result keeps has memory of its own, so that the rest is free again.
	work, kept := make([]float64, 4*n*l), make([]float64, 2*n*l)
	units, below := make([]int, n*l), make([]int, n*l)
	cut := func(of *[]float64) []float64 { v := (*of)[:l:l]; *of = (*of)[l:]; return v }
	cutInts := func(of *[]int) []int { v := (*of)[:l:l]; *of = (*of)[l:]; return v }
	for i := range sources {
		r := &w.rows[i]
		r.src = &sources[i]
		r.old, r.from, r.base, r.pace = cut(&work), cut(&work), cut(&work), cut(&work)
		r.want, r.next = cut(&kept), cut(&kept)
		r.units, r.below = cutInts(&units), cutInts(&below)
		r.rate = finite(r.src.Demand) * (1 - w.dropOf(r.src))
		r.dist = r.src.Distance
		if len(r.dist) != l {
			r.dist = make([]float64, l)
		}
		r.scope = w.scopeOf(r.src.Forbidden)
		r.barred = r.effectiveBars(r.src.Barred)
		r.idle = w.effectiveReserve(r)
		r.target = w.usableTarget(r)
		w.recall(r, i)
		w.setProbes(r)
		w.baseline(r)
	}
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return max(0, v)
}

// effectiveBars ignores bars when they would leave nothing.
func (r *row) effectiveBars(barred []bool) []bool {
	if len(barred) != len(r.scope.use) {
		return nil
	}
	some, left := false, false
	for i, b := range barred {
		if r.scope.use[i] {
			some = some || b
			left = left || !b
		}
	}
	if !some || !left {
		return nil
	}
	return barred
}

// usable tells whether the row's traffic may stay on site i.
func (w *work) usable(r *row, i int) bool { return r.scope.use[i] && !r.isBarred(i) }

// open tells whether the row's traffic may be put on site i.
func (w *work) open(r *row, i int) bool { return w.usable(r, i) && (r.idle == nil || !r.idle[i]) }

// member tells whether site i is, or is about to be, part of the row's
// priority 0.
func (w *work) member(r *row, i int) bool {
	return w.open(r, i) && (r.from[i] > 0 || r.want[i] >= entryShare-tiny)
}

func (r *row) isBarred(i int) bool { return r.barred != nil && r.barred[i] }

// usableTarget gives the solver's shares on the sites that are open to the
// row. A part that went to others is left out: it finds its place as what is
// lost to failures does.
func (w *work) usableTarget(r *row) []float64 {
	t := r.src.Target
	if len(t) != len(w.sites) || (!r.scope.regular && (!w.ignoresLoad || r.scope.failOpen)) {
		return nil
	}
	all, usable := 0.0, 0.0
	for i := range t {
		v := finite(t[i])
		all += v
		if w.open(r, i) {
			usable += v
		}
	}
	if usable <= tiny {
		return nil
	}
	out := make([]float64, len(t))
	for i := range t {
		if w.open(r, i) {
			out[i] = finite(t[i]) / all
		}
	}
	return out
}

// recall brings the published shares of a source onto today's sites.
func (w *work) recall(r *row, index int) {
	prev := w.in.Previous
	if prev == nil {
		return
	}
	if index < len(prev.Sources) && prev.Sources[index].Source == r.src.Locality {
		r.prev = &prev.Sources[index]
	} else {
		r.prev = prev.Source(r.src.Locality)
	}
	if r.prev == nil {
		return
	}
	r.was = r.prev.Assignment
	for i, m := range w.match {
		if m >= 0 && m < len(r.prev.Shares) {
			r.old[i] = r.prev.Shares[m]
		}
		if m >= 0 && m < len(r.prev.Below) {
			r.below[i] = r.prev.Below[m]
		}
	}
	// A source that had nowhere to go starts anew.
	if sum(r.prev.Shares) <= tiny {
		r.prev = nil
	}
}

// loads sums what the rows send to each site.
func (w *work) loads(shares func(*row) []float64) []float64 {
	sum := make([]float64, len(w.sites))
	w.loadsInto(sum, shares)
	return sum
}

func (w *work) loadsInto(sum []float64, shares func(*row) []float64) {
	clear(sum)
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate <= 0 {
			continue
		}
		for l, v := range shares(r) {
			sum[l] += r.rate * v
		}
	}
}

func fromOf(r *row) []float64 { return r.from }
func wantOf(r *row) []float64 { return r.want }
func nextOf(r *row) []float64 { return r.next }

// publishedOf is what a row sends before this decision.
func publishedOf(r *row) []float64 {
	if r.prev == nil {
		return r.from
	}
	return r.old
}

// rooms gives what is left of each site's limit under the given loads.
func (w *work) rooms(load []float64) []float64 {
	room := make([]float64, len(load))
	for i := range load {
		if w.view.use[i] {
			room[i] = max(0, w.view.limit[i]-load[i])
		}
	}
	return room
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
