package assign

import (
	"fmt"
	"math"

	"github.com/isobar-xds/isobar"
)

// sameCost is how much dearer a site may be, in ms, to count among the
// cheapest for a source without demand.
const sameCost = 1.0

// wantAll works out where the traffic of the sources with demand should go, from where it
// is. Those that have a target come first; the others see what headroom is left.
func wantAll(t *terms, sources []sourceState, from shares) shares {
	want := newShares(len(sources), len(t.sites))
	for i := range sources {
		if s := &sources[i]; s.rate > 0 && !s.byHeadroom(t) {
			s.wantTarget(t, from.of(i), want.of(i))
		}
	}
	placeMissing(t, sources, want)
	load := t.loads(sources, want)
	if !t.in.deciding() {
		// The others stay where they are.
		load = t.loads(sources, from)
		addFresh(load, sources, want.of)
	}
	headroom := t.headrooms(load)
	for i := range sources {
		if s := &sources[i]; s.rate > 0 && s.byHeadroom(t) {
			s.wantHeadroom(t, want.of(i), headroom)
		}
	}
	for i := range sources {
		if s := &sources[i]; s.rate > 0 {
			s.shape(t, want.of(i))
		}
	}
	if t.mode == isobar.ModeFull {
		keepMost(t, sources, from, want)
	}
	for i := range sources {
		if s := &sources[i]; s.rate > 0 {
			s.addProbes(t, want.of(i))
		}
	}
	return want
}

// wantIdle is wantAll for a source without demand. Headroom is what the published
// shares of the others leave.
func (s *sourceState) wantIdle(t *terms, from, want, headroom []float64) {
	switch {
	case s.target != nil && t.mode != isobar.ModeObserve:
		addScaled(want, s.target, 1/sum(s.target))
	case !s.scope.regular && s.prev != nil:
		copy(want, from)
	case !s.scope.regular || t.mode == isobar.ModeObserve:
		copy(want, s.base)
		s.note(ReasonBaseline, isobar.Locality{}, whyBaseline(t.mode))
	default:
		s.wantHeadroom(t, want, headroom)
	}
	s.shape(t, want)
	s.addProbes(t, want)
}

// byHeadroom reports whether a source is answered from headroom: a client without a
// locality is at no distance from anywhere, and a source without a target has
// only prices to go by.
func (s *sourceState) byHeadroom(t *terms) bool {
	switch {
	case !s.scope.regular || t.mode == isobar.ModeObserve:
		return false
	case s.target != nil && (t.in.Service.Policy != isobar.PolicyLatency || t.in.Service.Prefers()):
		return false // policies know what to do with both
	}
	return s.src.Locality.IsZero() || (s.target == nil && t.priced())
}

// wantTarget takes the solver's target; without one, what is there already when
// nothing is fit, or the baseline.
func (s *sourceState) wantTarget(t *terms, from, want []float64) {
	switch {
	case !s.scope.regular && s.prev != nil && s.target == nil:
		copy(want, from)
	case s.target != nil && t.mode != isobar.ModeObserve:
		copy(want, s.target)
	default:
		copy(want, s.base)
		s.note(ReasonBaseline, isobar.Locality{}, whyBaseline(t.mode))
	}
}

func whyBaseline(mode isobar.Mode) string {
	if mode == isobar.ModeObserve {
		return "mode observe: the nearest healthy locality"
	}
	return "nothing was solved for this source: the nearest healthy locality"
}

// placeMissing completes targets of which a part went to sites that are no
// longer open.
func placeMissing(t *terms, sources []sourceState, want shares) {
	p := placing{t: t, sources: sources, into: want}
	for i := range sources {
		s := &sources[i]
		if s.rate <= 0 || s.target == nil || s.byHeadroom(t) || t.mode == isobar.ModeObserve {
			continue
		}
		if gap := 1 - sum(want.of(i)); gap > tiny {
			p.lose(i, gap)
		}
	}
	if p.lost != nil {
		p.nearest(t.headrooms(t.loads(sources, want)), p.open)
		p.rest()
	}
}

// wantHeadroom answers a source from prices and headroom.
func (s *sourceState) wantHeadroom(t *terms, want, headroom []float64) {
	best := s.byCost(t, want, headroom)
	switch {
	case s.src.Locality.IsZero():
		s.note(ReasonNoDemand, isobar.Locality{}, "clients without a locality: by headroom alone")
	case !t.priced():
		s.note(ReasonBaseline, isobar.Locality{}, "the service has no demand: the nearest healthy locality")
	case s.rate > 0 && s.prev != nil && !t.in.deciding():
		// It stays where it is, and only what failed is moved.
	default:
		why := "no demand"
		if s.rate > 0 {
			why = "nothing was solved for this source yet"
		}
		s.note(ReasonNoDemand, isobar.Locality{}, fmt.Sprintf("%s: localities within %g ms of the cheapest (%.1f ms), by headroom", why, sameCost, best))
	}
}

// byCost splits a source over the sites that cost it least, by headroom, and tells
// what the cheapest costs, ms: any site for clients without a locality, the
// nearest without prices.
func (s *sourceState) byCost(t *terms, dst, headroom []float64) (best float64) {
	switch {
	case s.src.Locality.IsZero():
		s.splitNear(dst, s.dist, largestOf(s.dist), headroom)
		return 0
	case !t.priced():
		copy(dst, s.base)
		return 0
	}
	cost := make([]float64, len(t.sites))
	found := false
	for l := range cost {
		cost[l] = s.dist[l] + finite(t.in.Prices[l])
		if s.open(l) && (!found || cost[l] < best) {
			best, found = cost[l], true
		}
	}
	s.splitNear(dst, cost, best+sameCost, headroom)
	return best
}

func largestOf(v []float64) float64 {
	m := 0.0
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

// shape bounds the want around the baseline in mode bounded.
func (s *sourceState) shape(t *terms, want []float64) {
	if t.mode != isobar.ModeBounded || !s.scope.regular {
		return
	}
	if away := shift(want, s.base); away > t.maxShift+tiny {
		back := t.maxShift / away
		for l := range want {
			want[l] = s.base[l] + back*(want[l]-s.base[l])
		}
		s.note(ReasonBounded, isobar.Locality{},
			fmt.Sprintf("mode bounded: %.1f%% of the requests leave the nearest locality, of %.1f%% that would without the bound", 100*t.maxShift, 100*away))
	}
}

// keepMost cuts the wanted shares of sources to the most that they may get of each site. The freed
// part stays where it is, as far as there is headroom, else it goes to the nearest sites with
// headroom that are not bounded.
func keepMost(t *terms, sources []sourceState, from, want shares) {
	p := placing{t: t, sources: sources, into: want}
	var cuts [][]float64 // per source and site, nil = nothing
	for i := range sources {
		if s := &sources[i]; s.rate > 0 {
			cut, lost := s.cut(t, want.of(i))
			if cut == nil {
				continue
			}
			if cuts == nil {
				cuts = make([][]float64, len(sources))
			}
			cuts[i] = cut
			p.lose(i, lost)
		}
	}
	if cuts == nil {
		return
	}
	headroom := t.headrooms(t.loads(sources, want))
	keepBack := func(headroom []float64) {
		for i := range sources {
			if s := &sources[i]; cuts[i] != nil && s.prev != nil {
				p.lost[i] = s.keepBack(t, from.of(i), want.of(i), p.lost[i], headroom)
			}
		}
	}
	keepBack(headroom)
	p.nearest(headroom, p.unbounded)
	keepBack(nil)
	for i := range sources {
		if p.lost[i] > 0 { // nothing else is left
			for l, w := 0, want.of(i); l < len(w); l++ {
				w[l] += cuts[i][l] * p.lost[i] / sum(cuts[i])
			}
		}
	}
}

// unbounded reports whether the source at i may put however much on a site.
func (p *placing) unbounded(i, site int) bool {
	s := &p.sources[i]
	return s.open(site) && (p.t.mode != isobar.ModeFull || s.mostOf(site) >= 1)
}

// cut takes off what is above the most, and tells what it took; nil = nothing.
func (s *sourceState) cut(t *terms, want []float64) (cut []float64, lost float64) {
	for l := range want {
		most := s.mostOf(l)
		if want[l] <= most+tiny || !s.open(l) {
			continue
		}
		if cut == nil {
			cut = make([]float64, len(want))
		}
		cut[l] = want[l] - most
		lost += cut[l]
		s.note(ReasonHeld, t.sites[l].Group.Locality, s.whyHeld(l, most))
		want[l] = most
	}
	return cut, lost
}

func (s *sourceState) whyHeld(l int, most float64) string {
	if s.isBack(l) {
		return fmt.Sprintf("works again: up to %.0f%% of the traffic from here for now", 100*most)
	}
	return "a larger part of the requests there fails than before: no share of it rises"
}

// keepBack leaves what was cut on the sites that the source would leave for it, up to
// their headroom; nil = however much it is. It returns the part of lost that remains.
func (s *sourceState) keepBack(t *terms, from, want []float64, lost float64, headroom []float64) float64 {
	for range 2 {
		leaving := 0.0
		stays := func(l int) float64 {
			if !s.usable(l) {
				return 0
			}
			d := max(0, from[l]-want[l])
			if headroom != nil && t.ceilings && s.rate > 0 {
				d = min(d, headroom[l]/s.rate)
			}
			return d
		}
		for l := range want {
			leaving += stays(l)
		}
		if lost <= tiny || leaving <= tiny {
			return lost
		}
		part := min(1, lost/leaving)
		freed := lost
		for l := range want {
			d := part * stays(l)
			want[l] += d
			freed -= d
			if headroom != nil {
				headroom[l] = math.Max(0, headroom[l]-d*s.rate)
			}
		}
		lost = math.Max(0, freed)
	}
	return lost
}

// comesBack is the share that a source may move at once, because localities that
// failed work again.
func (s *sourceState) comesBack(mode isobar.Mode, from, want []float64) float64 {
	sum := 0.0
	if s.prev == nil || s.rate <= 0 || mode != isobar.ModeFull {
		return sum
	}
	for l := range want {
		if s.isBack(l) {
			sum += max(0, min(want[l], s.mostOf(l))-from[l])
		}
	}
	return sum
}

// addProbes takes what the probes need from the rest.
func (s *sourceState) addProbes(t *terms, want []float64) {
	rest := 1.0
	for l := range want {
		if s.isProbe(l) {
			rest -= s.probe
			want[l] = 0
		}
	}
	if rest >= 1 {
		return
	}
	for l := range want {
		if !s.isProbe(l) {
			want[l] *= rest
			continue
		}
		want[l] = s.probe
		why := "requests from here do not arrive there"
		if t.sites[l].Unreachable {
			why = "observed unreachable"
		}
		s.note(ReasonBarred, t.sites[l].Group.Locality, fmt.Sprintf("%s: a probe of %g%%", why, math.Round(1e4*s.probe)/100))
	}
}

// probeLoads is what the probes send to each site: it has to carry them, even
// if that is more than its limit, for nobody knows whether they arrive.
func probeLoads(t *terms, sources []sourceState) []float64 {
	load := make([]float64, len(t.sites))
	for i := range sources {
		s := &sources[i]
		for l := range load {
			if s.isProbe(l) {
				load[l] += s.rate * s.probe
			}
		}
	}
	return load
}
