package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// ward is a locality of one service while it is decided about.
type ward struct {
	drainState

	share float64 // of its endpoints that are healthy
}

// service decides about the localities of one service and returns the state to keep, sorted.
func (d *Drains) service(now time.Time, spec *isobar.Service, table Table) []drainState {
	wards := d.wards(spec, table)
	out := 0 // of use
	for i := range wards {
		w := &wards[i]
		w.recover(now)
		if w.drained || w.share == 0 {
			out++
		}
	}
	half := len(wards) / 2
	// The sickest first, so that the limit spares the least sick.
	slices.SortStableFunc(wards, func(a, b ward) int { return cmp.Compare(a.share, b.share) })
	for i := range wards {
		if w := &wards[i]; out < half && w.sick(now) {
			w.drained, w.since, w.released, w.enough = true, now, false, time.Time{}
			out++
		}
	}
	for i := len(wards) - 1; i >= 0 && out > half; i-- {
		if w := &wards[i]; w.drained && w.share > 0 {
			w.drained, w.since, w.released, w.enough = false, now, true, time.Time{}
			out--
		}
	}
	var states []drainState
	for i := range wards {
		if w := &wards[i]; w.drained || w.released {
			states = append(states, w.drainState)
		}
	}
	slices.SortStableFunc(states, func(a, b drainState) int { return a.compare(b.drainedLocality) })
	return states
}

// wards lists the localities of a service that have endpoints. Those that are
// draining are on their way out on purpose and say nothing, nor do those that
// wait for their first verdict. The list is good until the next call.
func (d *Drains) wards(spec *isobar.Service, table Table) []ward {
	out := d.buffer[:0]
	known := table.Of(spec.Name)
	for i := range spec.Localities {
		sl := &spec.Localities[i]
		all, healthy := 0, 0
		for j := range sl.Endpoints {
			e := &sl.Endpoints[j]
			switch h := known.Status(e); {
			case h == isobar.Draining, !h.Usable() && known.pending(e):
			case h.Usable():
				healthy++
				all++
			default:
				all++
			}
		}
		if all == 0 {
			continue
		}
		at := drainedLocality{service: spec.Name, locality: sl.Locality}
		w := ward{drainState: drainState{drainedLocality: at}, share: float64(healthy) / float64(all)}
		if k, found := slices.BinarySearchFunc(d.states, at, func(s drainState, at drainedLocality) int { return s.compare(at) }); found {
			w.drainState = d.states[k]
		}
		out = append(out, w)
	}
	d.buffer = out
	return out
}

// recover ends a drain that has lasted long enough.
func (w *ward) recover(now time.Time) {
	if w.share < undrainFrom {
		w.enough = time.Time{}
	} else if w.enough.IsZero() {
		w.enough = now
	}
	recovered := !w.enough.IsZero() && (now.Sub(w.enough) >= undrainHold || !w.drained)
	if w.drained && recovered {
		w.drained, w.since = false, now
	}
	if w.released && (recovered || now.Sub(w.since) >= undrainHold) {
		w.released = false
	}
}

// sick tells a locality that is to be drained. One that was released because
// too much was out of use is left alone for a while.
func (w *ward) sick(now time.Time) bool {
	return !w.drained && w.share > 0 && w.share < drainBelow && (!w.released || now.Sub(w.since) >= undrainHold)
}
