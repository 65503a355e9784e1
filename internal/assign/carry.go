package assign

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
)

// carry brings the published shares over to today's sites and health: what
// vanished, unhealthy or barred sites had goes to the nearest headroom at
// once; a site that came back gets nothing yet; a site that lost endpoints
// keeps its share unless that takes it above its limit. moved reports each source
// whether failures changed its shares.
func carry(t *terms, sources []sourceState) (from shares, moved []bool) {
	from, moved = newShares(len(sources), len(t.sites)), make([]bool, len(sources))
	p := placing{t: t, sources: sources, into: from}
	for i := range sources {
		if s := &sources[i]; s.prev != nil {
			lost := keepOpen(t, s, from.of(i))
			p.lose(i, lost)
			moved[i] = lost > 0
		}
	}
	if p.lost != nil {
		replace(&p)
	}
	if t.ceilings {
		relieveShrunk(&p, moved)
	}
	return from, moved
}

// keepOpen keeps the shares of sites that are still open to the source, and returns what that
// sets free.
func keepOpen(t *terms, s *sourceState, from []float64) (lost float64) {
	kept := 0.0
	worst, at := 0.0, -1
	for l, v := range s.old {
		keep := v
		switch {
		case s.isProbe(l):
			keep = min(v, s.probe)
		case !s.scope.use[l]:
			keep = 0
		}
		if v-keep > worst {
			worst, at = v-keep, l
		}
		from[l] = keep
		kept += keep
	}
	lost = max(0, 1-kept)
	if lost <= tiny {
		return 0
	}
	noteLost(t, s, lost, at)
	return lost
}

func noteLost(t *terms, s *sourceState, lost float64, at int) {
	if at < 0 {
		s.note(ReasonUnhealthy, isobar.Locality{}, fmt.Sprintf("%.1f%% of the requests moved off localities that are gone", 100*lost))
		return
	}
	l := t.sites[at].Group.Locality
	code, why := ReasonUnhealthy, "it takes no traffic"
	switch {
	case s.isForbidden(at):
		code, why = ReasonForbidden, "it is not allowed for this source"
	case s.isBarred(at) && s.scope.use[at]:
		code, why = ReasonBarred, "requests from here do not arrive there"
	case t.sites[at].Unreachable:
		why = "observed unreachable"
	case !t.sites[at].Usable():
		why = "no healthy endpoint"
	}
	s.note(code, l, fmt.Sprintf("%.1f%% of the requests moved off %s: %s", 100*lost, l, why))
}

// replace finds a place for what failures set free.
func replace(p *placing) {
	t := p.t
	for i := range p.sources {
		s := &p.sources[i]
		if p.lost[i] > 0 && (t.mode == isobar.ModeObserve || !s.scope.regular || t.ignoresLoad) {
			to := s.base
			if t.ignoresLoad && t.mode == isobar.ModeFull && s.target != nil {
				to = s.target
			}
			if all := sum(to); all > 0 {
				addScaled(p.into.of(i), to, p.lost[i]/all)
			}
			p.lost[i] = 0
		}
	}
	if t.mode == isobar.ModeBounded {
		replaceBounded(p)
		return
	}
	p.nearest(spare(t, p.sources, t.loads(p.sources, p.into)), p.open)
	p.rest()
}

// spare returns what is left of each site's limit under the given load of the
// sources that have an answer, when those that are new have taken what they are
// going to get.
func spare(t *terms, sources []sourceState, load []float64) []float64 {
	taken, headroom := slices.Clone(load), t.headrooms(load)
	addFresh(taken, sources, func(i int) []float64 {
		s := &sources[i]
		switch {
		case s.byHeadroom(t):
			guess := make([]float64, len(t.sites))
			s.byCost(t, guess, headroom)
			return guess
		case s.target != nil && t.mode != isobar.ModeObserve:
			return s.target
		default:
			return s.base
		}
	})
	return t.headrooms(taken)
}

// addFresh adds to load what the sources without an answer send by the given
// shares.
func addFresh(load []float64, sources []sourceState, of func(i int) []float64) {
	for i := range sources {
		if s := &sources[i]; s.prev == nil && s.rate > 0 {
			for l, v := range of(i) {
				load[l] += s.rate * v
			}
		}
	}
}

// replaceBounded places by nearest headroom as far as the bound around the
// baseline allows, and the rest as the baseline does.
func replaceBounded(p *placing) {
	t, from := p.t, p.into
	free := slices.Clone(p.lost)
	kept := make([][]float64, len(p.sources))
	for i := range p.sources {
		if free[i] > 0 {
			kept[i] = slices.Clone(from.of(i))
		}
	}
	p.nearest(spare(t, p.sources, t.loads(p.sources, from)), p.open)
	p.rest()
	for i := range p.sources {
		if free[i] <= 0 {
			continue
		}
		s := &p.sources[i]
		addScaled(kept[i], s.base, free[i])
		// The shift is convex along the line between the two placements.
		away, home := shift(from.of(i), s.base), shift(kept[i], s.base)
		if away <= t.maxShift || away <= home {
			continue
		}
		back := min(1, (away-t.maxShift)/(away-home))
		for l, f := 0, from.of(i); l < len(f); l++ {
			f[l] += back * (kept[i][l] - f[l])
		}
	}
}

// relieveShrunk moves away at once what a site can no longer carry because it
// lost endpoints, as far as there is headroom elsewhere. What was too much
// before the loss is left to pacing.
func relieveShrunk(p *placing, moved []bool) {
	t := p.t
	load := t.loads(p.sources, p.into)
	excess := make([]float64, len(t.sites)) // fraction of the load to move
	some := false
	for l := range t.sites {
		if m := t.match[l]; m >= 0 && t.view.use[l] && lostEndpoints(&t.sites[l], &t.in.Previous.Sites[m]) {
			fitted := min(load[l], t.in.Previous.Sites[m].Limit())
			if over := fitted - t.view.limit[l]; over > tiny*max(1, load[l]) {
				excess[l], some = over/load[l], true
			}
		}
	}
	if !some {
		return
	}
	headroom := spare(t, p.sources, load)
	for l := range headroom {
		if excess[l] > 0 {
			headroom[l] = 0
		}
	}
	origin := make([][]float64, len(p.sources))
	for i := range p.sources {
		if s := &p.sources[i]; s.prev != nil && s.rate > 0 {
			if freed, lost := release(p.into.of(i), excess); lost > 0 {
				origin[i] = freed
				p.lose(i, lost)
			}
		}
	}
	p.nearest(headroom, p.open)
	for i := range p.sources {
		if origin[i] == nil {
			continue
		}
		away := giveBack(p.into.of(i), origin[i], p.lost[i])
		p.lost[i] = 0
		if away > unit {
			moved[i] = true
			l := t.sites[largest(origin[i])].Group.Locality
			p.sources[i].note(ReasonUnhealthy, l, fmt.Sprintf("%.1f%% of the requests moved off %s: it lost endpoints and is above its limit", 100*away, l))
		}
	}
}

func lostEndpoints(now, before *Site) bool {
	return now.Capacity < before.Capacity && now.Group.Usable() < before.Group.Usable()
}

// release frees a fraction of a source's share on each site, and tells how much.
func release(from, fraction []float64) (freed []float64, lost float64) {
	freed = make([]float64, len(fraction))
	for l, f := range fraction {
		freed[l] = f * from[l]
		from[l] -= freed[l]
		lost += freed[l]
	}
	return freed, lost
}

// giveBack moves shares that no site could take back to their origins, and returns how much that
// was.
func giveBack(from, freed []float64, left float64) (away float64) {
	total := sum(freed)
	if total <= tiny {
		addScaled(from, freed, 1)
		return 0
	}
	addScaled(from, freed, left/total)
	return total - left
}
