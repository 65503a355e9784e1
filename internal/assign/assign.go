package assign

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// deciding reports whether weights may move: on a tick that is not held or refused.
func (in *Input) deciding() bool { return in.Trigger == Tick && in.Hold == "" && in.Refused == "" }

// Assign works out what each source of a service gets. A source that is asked
// for the first time is answered at once; others go one step of pacing on a
// tick. On a reapplication, and while weights are held, only what vanished or failed
// is moved. It never fails: what does not fit is told in the reasons.
func Assign(in Input) *Result {
	drop, classes := nextDrops(&in)
	t := newTerms(&in, drop, classes)
	sources, below := newSourceStates(t, in.Sources)
	d := &decision{load: make([]float64, len(t.sites)), units: newGrid[int](len(sources), len(t.sites)), below: below}
	from, moved := carry(t, sources)
	want := wantAll(t, sources, from)
	decideMembers(t, sources, from, want, d.below)
	d.pacing = newPacing(t, sources, from, want)
	caps, full := d.move(), t.full()
	revertSmallEntries(&d.pacing, full)
	round(sources, d.next, d.units, d.load, full)
	if in.deciding() && !in.Settle {
		suppress(&d.pacing, moved, d.units, d.load, caps)
	}
	moveCappedUnits(sources, d.units, d.load, caps, full)
	headroom := t.headrooms(d.load)
	for i := range sources {
		if sources[i].rate <= 0 { // they load nothing, so they do not concern each other
			d.answerIdle(i, headroom, moved[i])
		}
	}
	return d.result()
}

// decision is what becomes of the sources of a service: how far each goes, the units
// that clients get, and what these send to each site.
type decision struct {
	pacing

	units grid[int]
	below grid[int] // ticks for which a share was wanted below the exit threshold
	load  []float64
}

// ForNewSource returns what a source that has no answer yet gets, between two
// plans: the same as the next Assign would give it, until its demand is known.
// prices and the source's distance and target are per site of the result;
// prices and target may be nil. The answer is nil only when r is.
func ForNewSource(r *Result, prices []float64, source Source) *isobar.Assignment {
	if r == nil {
		return nil
	}
	if known := r.Source(source.Locality); known != nil {
		return known.Assignment
	}
	source.Demand = 0
	in := Input{
		Service:  &isobar.Service{Name: r.Service, Mode: r.Mode, Policy: r.Policy, MaxShift: r.MaxShift, Assignment: r.Settings},
		Sites:    r.Sites,
		Sources:  []Source{source},
		Prices:   prices,
		Previous: r,
	}
	t := newTerms(&in, r.Drop, r.Classes)
	sources, below := newSourceStates(t, in.Sources)
	n := len(t.sites)
	d := &decision{units: newGrid[int](1, n), below: below, pacing: newPacing(t, sources, newShares(1, n), newShares(1, n))}
	headroom := make([]float64, n)
	if len(r.Load) == n {
		headroom = t.headrooms(r.Load)
	}
	d.answerIdle(0, headroom, false)
	return newBuilder(t, headroom).build(&sources[0], d.units.of(0))
}

// decideMembers decides for the sources with demand which sites are part of their
// priority 0.
func decideMembers(t *terms, sources []sourceState, from, want shares, below grid[int]) {
	load, deciding := t.loads(sources, want), t.in.deciding()
	for i := range sources {
		if s := &sources[i]; s.rate > 0 && (deciding || s.prev == nil) {
			e := entry{sourceState: s, t: t, from: from.of(i), want: want.of(i), below: below.of(i), load: load}
			e.decideMembership(deciding)
		}
	}
}

// answerIdle does for a source without demand what the stages from wantAll to suppress
// do for the others. headroom is what these leave.
func (d *decision) answerIdle(i int, headroom []float64, moved bool) {
	t, s := d.t, d.at(i)
	none := make([]float64, len(t.sites))
	deciding := t.in.deciding()
	s.wantIdle(t, s.from, s.want, headroom)
	if deciding || s.prev == nil {
		e := entry{sourceState: s.sourceState, t: t, from: s.from, want: s.want, below: d.below.of(i), load: none}
		e.decideMembership(deciding)
	}
	if s.prev == nil {
		copy(s.from, s.want)
	}
	copy(s.next, s.from)
	if deciding {
		s.alone(t, none)
		copy(s.next, s.pace)
	}
	s.revertSmallEntry(t, none, nil)
	p := portion{sourceState: s.sourceState, next: s.next, units: d.units.of(i)}
	p.floor(none)
	p.topUp(none, nil)
	if x := (staying{sourceState: s.sourceState, want: s.want, units: d.units.of(i)}); deciding && !moved && x.near() {
		x.stay(none)
	}
}

func (d *decision) result() *Result {
	t, in := d.t, d.t.in
	out := &Result{
		Service: in.Service.Name, Sites: in.Sites, Drop: t.drop, Classes: t.classes, Load: d.load,
		Mode: t.mode, Policy: in.Service.Policy, MaxShift: in.Service.MaxShift, Settings: in.Service.Assignment,
		Groups: t.view.groups, Over: countOver(&d.pacing, d.load),
		Sources: make([]SourceResult, len(d.sources)),
	}
	b := newBuilder(t, t.headrooms(d.load))
	for i := range d.sources {
		s := &d.sources[i]
		shares := d.next.of(i) // reused: the units are what counts from here on
		below := d.below.of(i)
		for l, u := range d.units.of(i) {
			shares[l] = float64(u) / isobar.WeightScale
			if u == 0 {
				below[l] = 0
			}
		}
		explain(t, s, d.from.of(i), d.want.of(i), shares)
		out.Sources[i] = SourceResult{
			Source: s.src.Locality, Demand: s.src.Demand, Mix: s.src.Mix, Target: s.src.Target, Want: d.want.of(i),
			Shares: shares, Below: below, Assignment: b.build(s, d.units.of(i)), Reasons: slices.Clip(s.notes),
		}
	}
	return out
}
