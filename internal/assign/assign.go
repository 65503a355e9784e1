package assign

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// deciding tells whether weights may move: on a tick that is not held or refused.
func (in *Input) deciding() bool { return in.Trigger == Tick && in.Hold == "" && in.Refused == "" }

// Assign works out what each source of a service gets. A source that is asked
// for the first time is answered at once; others go one step of pacing on a
// tick. On a rebase, and while weights are held, only what vanished or failed
// is moved. It never fails: what does not fit is told in the reasons.
func Assign(in Input) *Result {
	w := newWork(&in)
	w.drop, w.classes = nextDrops(&in)
	w.addRows(in.Sources)
	w.carry()
	w.wantAll()
	caps := w.move()
	full := w.full()
	w.settleEntries(full)
	w.load = make([]float64, len(w.sites))
	w.round(w.load, full)
	if in.deciding() && !in.Settle {
		w.suppress(w.load, caps)
	}
	w.settleUnits(w.load, caps, full)
	w.moveIdle(w.rooms(w.load))
	return w.result()
}

// ForNewSource gives what a source that has no answer yet gets, between two
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
	w := newWork(&in)
	w.drop, w.classes = r.Drop, r.Classes
	w.addRows(in.Sources)
	room := make([]float64, len(w.sites))
	if len(r.Load) == len(w.sites) {
		room = w.rooms(r.Load)
	}
	w.moveIdle(room)
	return w.build(&w.rows[0], room)
}

// move takes the sources with demand from where they are towards what they
// want, and gives the load that each site may carry after it; nil where no
// ceilings bind.
func (w *work) move() (caps []float64) {
	deciding := w.in.deciding()
	load := w.loads(wantOf)
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate <= 0 {
			continue
		}
		if deciding || r.prev == nil {
			w.settleMembers(r, load, deciding)
		}
	}
	w.startFresh()
	if !deciding {
		for i := range w.rows {
			copy(w.rows[i].next, w.rows[i].from)
		}
		if w.ceilings {
			caps = w.caps(w.loads(fromOf))
		}
		return caps
	}
	if w.ceilings {
		caps = w.fitWants()
	}
	w.step(caps)
	return caps
}

// startFresh puts sources without an answer where they want to be.
func (w *work) startFresh() {
	for i := range w.rows {
		if r := &w.rows[i]; r.prev == nil {
			copy(r.from, r.want)
		}
	}
}

// moveIdle does for sources without demand what move, round and suppress do
// for the others. They load nothing, so they do not concern each other.
func (w *work) moveIdle(room []float64) {
	none := make([]float64, len(w.sites))
	deciding := w.in.deciding()
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate > 0 {
			continue
		}
		w.wantIdle(r, room)
		if deciding || r.prev == nil {
			w.settleMembers(r, none, deciding)
		}
		if r.prev == nil {
			copy(r.from, r.want)
		}
		copy(r.next, r.from)
		if deciding {
			w.stepAlone(r, none)
			copy(r.next, r.pace)
		}
		w.settleEntry(r, none, nil)
		r.floor(none)
		r.topUp(none, nil)
		if deciding && w.quiet(r) {
			w.stay(r, none)
		}
	}
}

func (w *work) result() *Result {
	in := w.in
	out := &Result{
		Service: in.Service.Name, Sites: in.Sites, Drop: w.drop, Classes: w.classes, Load: w.load,
		Mode: w.mode, Policy: in.Service.Policy, MaxShift: in.Service.MaxShift, Settings: in.Service.Assignment, Groups: w.view.groups, Over: w.countOver(w.load),
		Sources: make([]SourceResult, len(w.rows)),
	}
	room := w.rooms(w.load)
	for i := range w.rows {
		r := &w.rows[i]
		shares := r.next // reused: the units are what counts from here on
		for l, u := range r.units {
			shares[l] = float64(u) / isobar.WeightScale
			if u == 0 {
				r.below[l] = 0
			}
		}
		w.explain(r, shares)
		out.Sources[i] = SourceResult{
			Source: r.src.Locality, Demand: r.src.Demand, Mix: r.src.Mix, Target: r.src.Target, Want: r.want,
			Shares: shares, Below: r.below, Assignment: w.build(r, room), Reasons: slices.Clip(r.notes),
		}
	}
	return out
}
