package assign

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// sourceState is one source as it stands before anything is decided. The stages that follow only
// read it, but for the notes.
type sourceState struct {
	src    *Source
	prev   *SourceResult // nil for a source that had no answer yet
	was    *isobar.Assignment
	rate   float64   // requests/s after drops
	dist   []float64 // per site, ms
	target []float64 // the solver's shares on sites in use, summing to 1; nil without
	scope  *view     // the sites as far as the source may know of them
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

// newSourceStates prepares the state of each source. below tells for how many ticks each of its shares
// was wanted below the exit threshold so far.
func newSourceStates(t *terms, given []Source) (sources []sourceState, below grid[int]) {
	n, l := len(given), len(t.sites)
	sources, below = make([]sourceState, n), newGrid[int](n, l)
	work := newShares(2*n, l)
	var scopes scopes
	for i := range given {
		s := &sources[i]
		s.src, s.old, s.base = &given[i], work.of(2*i), work.of(2*i+1)
		s.rate = finite(s.src.Demand) * (1 - t.dropOf(s.src))
		s.dist = s.src.Distance
		if len(s.dist) != l {
			s.dist = make([]float64, l)
		}
		s.scope = scopes.of(t, s.src.Forbidden)
		s.barred = effectiveBars(s.scope, s.src.Barred)
		s.idle = s.effectiveReserve()
		s.target = s.usableTarget(t.ignoresLoad)
		s.recall(t, i, below.of(i))
		s.setProbes(t)
		s.baseline()
	}
	return sources, below
}

// scopes are the views of sources that must not use some sites, each made once.
type scopes []struct {
	forbidden []bool
	view      *view
}

// of returns the view of sources that must not use the forbidden sites: where
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
func (s *sourceState) effectiveReserve() []bool {
	if len(s.src.Reserve) != len(s.scope.use) || !s.scope.regular {
		return nil
	}
	for l, reserve := range s.src.Reserve {
		if !reserve && s.usable(l) {
			return s.src.Reserve
		}
	}
	return nil
}

// usableTarget returns the solver's shares on the sites that are open to the
// source. A part that went to others is left out: it finds its place as what is
// lost to failures does.
func (s *sourceState) usableTarget(ignoresLoad bool) []float64 {
	t := s.src.Target
	if len(t) != len(s.scope.use) || (!s.scope.regular && (!ignoresLoad || s.scope.failOpen)) {
		return nil
	}
	all, usable := 0.0, 0.0
	for i := range t {
		v := finite(t[i])
		all += v
		if s.open(i) {
			usable += v
		}
	}
	if usable <= tiny {
		return nil
	}
	out := make([]float64, len(t))
	for i := range t {
		if s.open(i) {
			out[i] = finite(t[i]) / all
		}
	}
	return out
}

// recall brings the published shares of a source onto today's sites.
func (s *sourceState) recall(t *terms, index int, below []int) {
	prev := t.in.Previous
	if prev == nil {
		return
	}
	if index < len(prev.Sources) && prev.Sources[index].Source == s.src.Locality {
		s.prev = &prev.Sources[index]
	} else {
		s.prev = prev.Source(s.src.Locality)
	}
	if s.prev == nil {
		return
	}
	s.was = s.prev.Assignment
	for i, m := range t.match {
		if m >= 0 && m < len(s.prev.Shares) {
			s.old[i] = s.prev.Shares[m]
		}
		if m >= 0 && m < len(s.prev.Below) {
			below[i] = s.prev.Below[m]
		}
	}
	// A source that had nowhere to go begins again.
	if sum(s.prev.Shares) <= tiny {
		s.prev = nil
	}
}

// baseline is what plain locality failover does: the nearest site in use, ties
// together by their healthy endpoints. It knows nothing of load and capacity.
func (s *sourceState) baseline() {
	near, found := 0.0, false
	for l := range s.dist {
		if s.open(l) && (!found || s.dist[l] < near) {
			near, found = s.dist[l], true
		}
	}
	if found {
		s.splitNear(s.base, s.dist, near+sameDistance, s.scope.size)
	}
}

// setProbes finds the sites to which a source sends no more than a probe: those it
// is barred from, and those that nobody can reach, if it is barred from them or
// had a share there. Where nothing is fit there is nothing to lose and no need
// for probes.
func (s *sourceState) setProbes(t *terms) {
	n := 0
	for l := range t.sites {
		if !s.sendsProbe(t, l) {
			continue
		}
		if s.probes == nil {
			s.probes = make([]bool, len(t.sites))
		}
		s.probes[l] = true
		n++
	}
	if n > 0 {
		s.probe = min(probeShare, mostProbes/float64(n))
	}
}

func (s *sourceState) sendsProbe(t *terms, l int) bool {
	if s.scope.use[l] {
		return s.isBarred(l)
	}
	site := &t.sites[l]
	if s.isForbidden(l) || !s.scope.regular || !site.Unreachable || !site.Usable() {
		return false
	}
	return s.old[l] > 0 || (len(s.src.Barred) == len(t.sites) && s.src.Barred[l])
}

// usable reports whether the source's traffic may stay on site i.
func (s *sourceState) usable(i int) bool { return s.scope.use[i] && !s.isBarred(i) }

// open reports whether the source's traffic may be put on site i.
func (s *sourceState) open(i int) bool { return s.usable(i) && (s.idle == nil || !s.idle[i]) }

func (s *sourceState) isBarred(i int) bool { return s.barred != nil && s.barred[i] }

// isForbidden reports whether the source must never send to site i.
func (s *sourceState) isForbidden(i int) bool { return i < len(s.src.Forbidden) && s.src.Forbidden[i] }

func (s *sourceState) isProbe(l int) bool { return s.probes != nil && s.probes[l] }

// isBack reports whether the source's share of site l comes back after an outage.
func (s *sourceState) isBack(l int) bool { return l < len(s.src.Back) && s.src.Back[l] }

// isChosen reports whether the source's clients send more to site l than planned.
func (s *sourceState) isChosen(l int) bool { return l < len(s.src.Chosen) && s.src.Chosen[l] }

// mostOf is the largest share of site l that the source may get in mode full.
func (s *sourceState) mostOf(l int) float64 {
	if len(s.src.Most) != len(s.scope.use) || s.prev == nil {
		return 1
	}
	return s.src.Most[l]
}

// member reports whether site i is, or is about to be, part of the source's
// priority 0.
func (s *sourceState) member(i int, from, want []float64) bool {
	return s.open(i) && (from[i] > 0 || want[i] >= entryShare-tiny)
}

// addTo adds to sum what the source sends to each site with the given shares, requests/s.
func (s *sourceState) addTo(sum, shares []float64) {
	if s.rate <= 0 {
		return
	}
	for l, v := range shares {
		sum[l] += s.rate * v
	}
}

func (s *sourceState) note(code ReasonCode, l isobar.Locality, text string) {
	s.notes = append(s.notes, Reason{Code: code, Locality: l, Text: text})
}
