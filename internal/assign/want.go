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
func wantAll(t *terms, rows []row, from shares) shares {
	want := newShares(len(rows), len(t.sites))
	for i := range rows {
		if r := &rows[i]; r.rate > 0 && !r.byHeadroom(t) {
			r.wantTarget(t, from.of(i), want.of(i))
		}
	}
	placeMissing(t, rows, want)
	load := t.loads(rows, want)
	if !t.in.deciding() {
		// The others stay where they are.
		load = t.loads(rows, from)
		addFresh(load, rows, want.of)
	}
	headroom := t.headrooms(load)
	for i := range rows {
		if r := &rows[i]; r.rate > 0 && r.byHeadroom(t) {
			r.wantHeadroom(t, want.of(i), headroom)
		}
	}
	for i := range rows {
		if r := &rows[i]; r.rate > 0 {
			r.shape(t, want.of(i))
		}
	}
	if t.mode == isobar.ModeFull {
		keepMost(t, rows, from, want)
	}
	for i := range rows {
		if r := &rows[i]; r.rate > 0 {
			r.addProbes(t, want.of(i))
		}
	}
	return want
}

// wantIdle is wantAll for a source without demand. Room is what the published
// shares of the others leave.
func (r *row) wantIdle(t *terms, from, want, headroom []float64) {
	switch {
	case r.target != nil && t.mode != isobar.ModeObserve:
		addScaled(want, r.target, 1/sum(r.target))
	case !r.scope.regular && r.prev != nil:
		copy(want, from)
	case !r.scope.regular || t.mode == isobar.ModeObserve:
		copy(want, r.base)
		r.note(ReasonBaseline, isobar.Locality{}, whyBaseline(t.mode))
	default:
		r.wantHeadroom(t, want, headroom)
	}
	r.shape(t, want)
	r.addProbes(t, want)
}

// byHeadroom reports whether a row is answered from headroom: a client without a
// locality is at no distance from anywhere, and a source without a target has
// only prices to go by.
func (r *row) byHeadroom(t *terms) bool {
	switch {
	case !r.scope.regular || t.mode == isobar.ModeObserve:
		return false
	case r.target != nil && (t.in.Service.Policy != isobar.PolicyLatency || t.in.Service.Prefers()):
		return false // policies know what to do with both
	}
	return r.src.Locality.IsZero() || (r.target == nil && t.priced())
}

// wantTarget takes the solver's target; without one, what is there already when
// nothing is fit, or the baseline.
func (r *row) wantTarget(t *terms, from, want []float64) {
	switch {
	case !r.scope.regular && r.prev != nil && r.target == nil:
		copy(want, from)
	case r.target != nil && t.mode != isobar.ModeObserve:
		copy(want, r.target)
	default:
		copy(want, r.base)
		r.note(ReasonBaseline, isobar.Locality{}, whyBaseline(t.mode))
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
func placeMissing(t *terms, rows []row, want shares) {
	p := placing{t: t, rows: rows, into: want}
	for i := range rows {
		r := &rows[i]
		if r.rate <= 0 || r.target == nil || r.byHeadroom(t) || t.mode == isobar.ModeObserve {
			continue
		}
		if gap := 1 - sum(want.of(i)); gap > tiny {
			p.lose(i, gap)
		}
	}
	if p.lost != nil {
		p.nearest(t.headrooms(t.loads(rows, want)), p.open)
		p.rest()
	}
}

// wantHeadroom answers a row from prices and headroom.
func (r *row) wantHeadroom(t *terms, want, headroom []float64) {
	best := r.byCost(t, want, headroom)
	switch {
	case r.src.Locality.IsZero():
		r.note(ReasonNoDemand, isobar.Locality{}, "clients without a locality: by headroom alone")
	case !t.priced():
		r.note(ReasonBaseline, isobar.Locality{}, "the service has no demand: the nearest healthy locality")
	case r.rate > 0 && r.prev != nil && !t.in.deciding():
		// It stays where it is, and only what failed is moved.
	default:
		why := "no demand"
		if r.rate > 0 {
			why = "nothing was solved for this source yet"
		}
		r.note(ReasonNoDemand, isobar.Locality{}, fmt.Sprintf("%s: localities within %g ms of the cheapest (%.1f ms), by headroom", why, sameCost, best))
	}
}

// byCost splits a row over the sites that cost it least, by headroom, and tells
// what the cheapest costs, ms: any site for clients without a locality, the
// nearest without prices.
func (r *row) byCost(t *terms, dst, headroom []float64) (best float64) {
	switch {
	case r.src.Locality.IsZero():
		r.splitNear(dst, r.dist, largestOf(r.dist), headroom)
		return 0
	case !t.priced():
		copy(dst, r.base)
		return 0
	}
	cost := make([]float64, len(t.sites))
	found := false
	for l := range cost {
		cost[l] = r.dist[l] + finite(t.in.Prices[l])
		if r.open(l) && (!found || cost[l] < best) {
			best, found = cost[l], true
		}
	}
	r.splitNear(dst, cost, best+sameCost, headroom)
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
func (r *row) shape(t *terms, want []float64) {
	if t.mode != isobar.ModeBounded || !r.scope.regular {
		return
	}
	if away := shift(want, r.base); away > t.maxShift+tiny {
		back := t.maxShift / away
		for l := range want {
			want[l] = r.base[l] + back*(want[l]-r.base[l])
		}
		r.note(ReasonBounded, isobar.Locality{},
			fmt.Sprintf("mode bounded: %.1f%% of the requests leave the nearest locality, of %.1f%% that would without the bound", 100*t.maxShift, 100*away))
	}
}

// keepMost cuts the wanted shares of rows to the most that they may get of each site. The freed
// part stays where it is, as far as there is headroom, else it goes to the nearest sites with
// headroom that are not bounded.
func keepMost(t *terms, rows []row, from, want shares) {
	p := placing{t: t, rows: rows, into: want}
	var cuts [][]float64 // per row and site, nil = nothing
	for i := range rows {
		if r := &rows[i]; r.rate > 0 {
			cut, lost := r.cut(t, want.of(i))
			if cut == nil {
				continue
			}
			if cuts == nil {
				cuts = make([][]float64, len(rows))
			}
			cuts[i] = cut
			p.lose(i, lost)
		}
	}
	if cuts == nil {
		return
	}
	headroom := t.headrooms(t.loads(rows, want))
	keepBack := func(headroom []float64) {
		for i := range rows {
			if r := &rows[i]; cuts[i] != nil && r.prev != nil {
				p.lost[i] = r.keepBack(t, from.of(i), want.of(i), p.lost[i], headroom)
			}
		}
	}
	keepBack(headroom)
	p.nearest(headroom, p.unbounded)
	keepBack(nil)
	for i := range rows {
		if p.lost[i] > 0 { // nothing else is left
			for l, w := 0, want.of(i); l < len(w); l++ {
				w[l] += cuts[i][l] * p.lost[i] / sum(cuts[i])
			}
		}
	}
}

// unbounded reports whether the row at i may put however much on a site.
func (p *placing) unbounded(i, site int) bool {
	r := &p.rows[i]
	return r.open(site) && (p.t.mode != isobar.ModeFull || r.mostOf(site) >= 1)
}

// cut takes off what is above the most, and tells what it took; nil = nothing.
func (r *row) cut(t *terms, want []float64) (cut []float64, lost float64) {
	for l := range want {
		most := r.mostOf(l)
		if want[l] <= most+tiny || !r.open(l) {
			continue
		}
		if cut == nil {
			cut = make([]float64, len(want))
		}
		cut[l] = want[l] - most
		lost += cut[l]
		r.note(ReasonHeld, t.sites[l].Group.Locality, r.whyHeld(l, most))
		want[l] = most
	}
	return cut, lost
}

func (r *row) whyHeld(l int, most float64) string {
	if r.isBack(l) {
		return fmt.Sprintf("works again: up to %.0f%% of the traffic from here for now", 100*most)
	}
	return "a larger part of the requests there fails than before: no share of it rises"
}

// keepBack leaves what was cut on the sites that the row would leave for it, up to
// their headroom; nil = however much it is. It returns the part of lost that remains.
func (r *row) keepBack(t *terms, from, want []float64, lost float64, headroom []float64) float64 {
	for range 2 {
		leaving := 0.0
		stays := func(l int) float64 {
			if !r.usable(l) {
				return 0
			}
			d := max(0, from[l]-want[l])
			if headroom != nil && t.ceilings && r.rate > 0 {
				d = min(d, headroom[l]/r.rate)
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
				headroom[l] = math.Max(0, headroom[l]-d*r.rate)
			}
		}
		lost = math.Max(0, freed)
	}
	return lost
}

// comesBack is the share that a row may move at once, because localities that
// failed work again.
func (r *row) comesBack(mode isobar.Mode, from, want []float64) float64 {
	sum := 0.0
	if r.prev == nil || r.rate <= 0 || mode != isobar.ModeFull {
		return sum
	}
	for l := range want {
		if r.isBack(l) {
			sum += max(0, min(want[l], r.mostOf(l))-from[l])
		}
	}
	return sum
}

// addProbes takes what the probes need from the rest.
func (r *row) addProbes(t *terms, want []float64) {
	rest := 1.0
	for l := range want {
		if r.isProbe(l) {
			rest -= r.probe
			want[l] = 0
		}
	}
	if rest >= 1 {
		return
	}
	for l := range want {
		if !r.isProbe(l) {
			want[l] *= rest
			continue
		}
		want[l] = r.probe
		why := "requests from here do not arrive there"
		if t.sites[l].Unreachable {
			why = "observed unreachable"
		}
		r.note(ReasonBarred, t.sites[l].Group.Locality, fmt.Sprintf("%s: a probe of %g%%", why, math.Round(1e4*r.probe)/100))
	}
}

// probeLoads is what the probes send to each site: it has to carry them, even
// if that is more than its limit, for nobody knows whether they arrive.
func probeLoads(t *terms, rows []row) []float64 {
	load := make([]float64, len(t.sites))
	for i := range rows {
		r := &rows[i]
		for l := range load {
			if r.isProbe(l) {
				load[l] += r.rate * r.probe
			}
		}
	}
	return load
}
