package assign

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// row is one source as it stands before anything is decided. The stages that follow only
// read it, but for the notes.
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
	base   []float64 // the baseline
	notes  []Reason
}

// Probes keep a little traffic on sites that seem to be out of reach: without
// any nobody would see when they can be reached again.
const (
	probeShare = 1 * point  // of a source's traffic, to one site
	mostProbes = 10 * point // of a source's traffic, to all of them
)

// newRows prepares one row per source. below tells for how many ticks each of its shares
// was wanted below the exit threshold so far.
func newRows(t *terms, sources []Source) (rows []row, below grid[int]) {
	n, l := len(sources), len(t.sites)
	rows, below = make([]row, n), newGrid[int](n, l)
	work := newShares(2*n, l)
	var scopes scopes
	for i := range sources {
		r := &rows[i]
		r.src, r.old, r.base = &sources[i], work.of(2*i), work.of(2*i+1)
		r.rate = finite(r.src.Demand) * (1 - t.dropOf(r.src))
		r.dist = r.src.Distance
		if len(r.dist) != l {
			r.dist = make([]float64, l)
		}
		r.scope = scopes.of(t, r.src.Forbidden)
		r.barred = effectiveBars(r.scope, r.src.Barred)
		r.idle = r.effectiveReserve()
		r.target = r.usableTarget(t.ignoresLoad)
		r.recall(t, i, below.of(i))
		r.setProbes(t)
		r.baseline()
	}
	return rows, below
}

// scopes are the views of rows that must not use some sites, each made once.
type scopes []struct {
	forbidden []bool
	view      *view
}

// of returns the view of rows that must not use the forbidden sites: where
// nothing else is healthy, these fail open, and the others are as if they were
// not there.
func (s *scopes) of(t *terms, forbidden []bool) *view {
	if len(forbidden) != len(t.sites) || !slices.Contains(forbidden, true) {
		return &t.view
	}
	for i := range *s {
		if slices.Equal((*s)[i].forbidden, forbidden) {
			return (*s)[i].view
		}
	}
	v := viewOf(t.sites, forbidden)
	for l := range v.groups {
		// Endpoints that are published as they are have one group for all.
		if v.groups[l] == t.sites[l].Group || v.groups[l].Equal(t.view.groups[l]) {
			v.groups[l] = t.view.groups[l]
		}
	}
	*s = append(*s, struct {
		forbidden []bool
		view      *view
	}{forbidden, &v})
	return &v
}

// effectiveBars ignores bars when they would leave nothing.
func effectiveBars(scope *view, barred []bool) []bool {
	if len(barred) != len(scope.use) {
		return nil
	}
	some, left := false, false
	for i, b := range barred {
		if scope.use[i] {
			some = some || b
			left = left || !b
		}
	}
	if !some || !left {
		return nil
	}
	return barred
}

// effectiveReserve ignores reserves where nothing else is fit.
func (r *row) effectiveReserve() []bool {
	if len(r.src.Reserve) != len(r.scope.use) || !r.scope.regular {
		return nil
	}
	for l, reserve := range r.src.Reserve {
		if !reserve && r.usable(l) {
			return r.src.Reserve
		}
	}
	return nil
}

// usableTarget returns the solver's shares on the sites that are open to the
// row. A part that went to others is left out: it finds its place as what is
// lost to failures does.
func (r *row) usableTarget(ignoresLoad bool) []float64 {
	t := r.src.Target
	if len(t) != len(r.scope.use) || (!r.scope.regular && (!ignoresLoad || r.scope.failOpen)) {
		return nil
	}
	all, usable := 0.0, 0.0
	for i := range t {
		v := finite(t[i])
		all += v
		if r.open(i) {
			usable += v
		}
	}
	if usable <= tiny {
		return nil
	}
	out := make([]float64, len(t))
	for i := range t {
		if r.open(i) {
			out[i] = finite(t[i]) / all
		}
	}
	return out
}

// recall brings the published shares of a source onto today's sites.
func (r *row) recall(t *terms, index int, below []int) {
	prev := t.in.Previous
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
	for i, m := range t.match {
		if m >= 0 && m < len(r.prev.Shares) {
			r.old[i] = r.prev.Shares[m]
		}
		if m >= 0 && m < len(r.prev.Below) {
			below[i] = r.prev.Below[m]
		}
	}
	// A source that had nowhere to go begins again.
	if sum(r.prev.Shares) <= tiny {
		r.prev = nil
	}
}

// baseline is what plain locality failover does: the nearest site in use, ties
// together by their healthy endpoints. It knows nothing of load and capacity.
func (r *row) baseline() {
	near, found := 0.0, false
	for l := range r.dist {
		if r.open(l) && (!found || r.dist[l] < near) {
			near, found = r.dist[l], true
		}
	}
	if found {
		r.splitNear(r.base, r.dist, near+sameDistance, r.scope.size)
	}
}

// setProbes finds the sites to which a row sends no more than a probe: those it
// is barred from, and those that nobody can reach, if it is barred from them or
// had a share there. Where nothing is fit there is nothing to lose and no need
// for probes.
func (r *row) setProbes(t *terms) {
	n := 0
	for l := range t.sites {
		if !r.sendsProbe(t, l) {
			continue
		}
		if r.probes == nil {
			r.probes = make([]bool, len(t.sites))
		}
		r.probes[l] = true
		n++
	}
	if n > 0 {
		r.probe = min(probeShare, mostProbes/float64(n))
	}
}

func (r *row) sendsProbe(t *terms, l int) bool {
	if r.scope.use[l] {
		return r.isBarred(l)
	}
	s := &t.sites[l]
	if r.isForbidden(l) || !r.scope.regular || !s.Unreachable || !s.Usable() {
		return false
	}
	return r.old[l] > 0 || (len(r.src.Barred) == len(t.sites) && r.src.Barred[l])
}

// usable reports whether the row's traffic may stay on site i.
func (r *row) usable(i int) bool { return r.scope.use[i] && !r.isBarred(i) }

// open reports whether the row's traffic may be put on site i.
func (r *row) open(i int) bool { return r.usable(i) && (r.idle == nil || !r.idle[i]) }

func (r *row) isBarred(i int) bool { return r.barred != nil && r.barred[i] }

// isForbidden reports whether the row must never send to site i.
func (r *row) isForbidden(i int) bool { return i < len(r.src.Forbidden) && r.src.Forbidden[i] }

func (r *row) isProbe(l int) bool { return r.probes != nil && r.probes[l] }

// isBack reports whether the row's share of site l comes back after an outage.
func (r *row) isBack(l int) bool { return l < len(r.src.Back) && r.src.Back[l] }

// mostOf is the largest share of site l that the row may get in mode full.
func (r *row) mostOf(l int) float64 {
	if len(r.src.Most) != len(r.scope.use) || r.prev == nil {
		return 1
	}
	return r.src.Most[l]
}

// member reports whether site i is, or is about to be, part of the row's
// priority 0.
func (r *row) member(i int, from, want []float64) bool {
	return r.open(i) && (from[i] > 0 || want[i] >= entryShare-tiny)
}

// addTo adds to sum what the row sends to each site with the given shares, requests/s.
func (r *row) addTo(sum, shares []float64) {
	if r.rate <= 0 {
		return
	}
	for l, v := range shares {
		sum[l] += r.rate * v
	}
}

func (r *row) note(code ReasonCode, l isobar.Locality, text string) {
	r.notes = append(r.notes, Reason{Code: code, Locality: l, Text: text})
}
