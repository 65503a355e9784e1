package plan

import (
	"fmt"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Damping is what is done about limit cycles of a service: its shares go only a
// part of their way at each tick, for a while, and then step by step more again.
// Immutable once it is part of a plan.
type Damping struct {
	Level int // each halves what shares go at a tick; 0 = nothing
	Left  int // ticks until one level less
	Found int // cycles that were found so far

	// Of the newest: where, by how much of the service's load, and how many
	// ticks there and back.
	Locality  isobar.Locality
	Amplitude float64
	Ticks     float64

	// Astray says that clients did not follow their shares when it was found: then
	// smaller steps of these would not help, and nothing is damped.
	Astray bool

	again        int // found since the damping was off
	oscillations *assign.Oscillations
	usable       int // endpoints, when the oscillations began
}

// Rules of damping.
const (
	maxDamping    = 3
	dampTicks     = 60 // at a level; doubled each time that a cycle is found again
	dampDoublings = 3
)

// Gain is which part of their way shares go at a tick, above 0 to 1.
func (d *Damping) Gain() float64 {
	if d == nil {
		return 1
	}
	return 1 / float64(int(1)<<d.Level)
}

// String says it in a line; empty while nothing is damped.
func (d *Damping) String() string {
	switch {
	case d == nil || d.Left == 0:
		return ""
	case d.Level == 0:
		return d.why() + ": nothing is damped, because clients do not follow their shares"
	}
	return fmt.Sprintf("%s: steps are damped to 1/%d, for %d more ticks at least", d.why(), 1<<d.Level, d.Left)
}

func (d *Damping) why() string {
	return fmt.Sprintf("the load of %s oscillated by %.1f percentage points in %.0f ticks while demand and health stayed", d.Locality, 100*d.Amplitude, d.Ticks)
}

// later is the damping a tick later.
func (d *Damping) later(deviates bool) *Damping {
	if d == nil || d.Left == 0 {
		return d
	}
	next := *d
	if next.Left--; next.Left == 0 {
		next.Level = max(0, next.Level-1)
		if next.Level > 0 {
			next.Left = dampTicks
		} else {
			next.again = 0
		}
	}
	if deviates {
		next.Level = 0
	}
	return &next
}

// watchCycles looks for limit cycles in what was decided, and returns the damping from then
// on. What begins again is not a cycle: other endpoints, another configuration or mode, a
// hold.
func watchCycles(s, prev *Service) *Damping {
	var before Damping
	if s.Damping != nil {
		before = *s.Damping
	}
	usable := 0
	for i := range s.Sites {
		if !s.Sites[i].Drained {
			usable += s.Sites[i].Group.Usable()
		}
	}
	if prev == nil || usable != before.usable || !sameSpec(prev.Spec, s.Spec) || prev.Mode() != s.Mode() || s.Hold != "" {
		before.oscillations = nil
	}
	// What is measured, not what is steered: findings take from that, and they
	// may be what oscillates.
	var demand []float64
	if s.Load != nil {
		for i := range s.Load.Sources {
			demand = append(demand, s.Load.Sources[i].Demand)
		}
	}
	oscillations, found := before.oscillations.Observe(s.Result.Load, demand)
	next := before
	next.oscillations, next.usable = oscillations, usable
	if found != nil {
		next.Locality, next.Amplitude, next.Ticks = s.Sites[found.Site].Group.Locality, found.Amplitude, found.Ticks
		next.Left, next.Astray = dampTicks<<min(next.again, dampDoublings), deviates(&s.Findings)
		if next.Level = min(next.Level+1, maxDamping); next.Astray {
			next.Level = 0
		}
		next.Found++
		next.again++
	}
	return &next
}

// deviates reports whether clients do not follow their assignments.
func deviates(f *load.Findings) bool { return len(f.Deviating) > 0 || len(f.Background) > 0 }
