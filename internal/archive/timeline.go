package archive

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// Timeline is how much changed over time, in steps of equal length. Its lists have one
// entry for each step.
type Timeline struct {
	Begin       time.Time `json:"begin"` // of the first step
	StepSeconds float64   `json:"step_seconds"`
	Oldest      time.Time `json:"oldest,omitzero"` // oldest change that is kept; zero: none
	Changes     []int     `json:"changes"`         // number of changes
	Moved       []float64 `json:"moved"`           // the largest part of its traffic that a source moved
	Triggers    []string  `json:"triggers"`        // of the largest change: operator, restart, topology, health or tick; empty: no change
}

// TimelineOf sums marks up in so many steps from a moment on.
func TimelineOf(marks []Mark, begin time.Time, step time.Duration, steps int) Timeline {
	out := Timeline{Begin: begin.UTC(), StepSeconds: step.Seconds(), Changes: make([]int, steps), Moved: make([]float64, steps), Triggers: make([]string, steps)}
	if len(marks) > 0 {
		out.Oldest = marks[0].Made
	}
	largest := make([]*Mark, steps)
	for i := range marks {
		m := &marks[i]
		k := int(math.Floor(m.Made.Sub(begin).Seconds() / step.Seconds()))
		if k < 0 || k >= steps {
			continue
		}
		out.Changes[k]++
		out.Moved[k] = max(out.Moved[k], m.Moved)
		if largest[k] == nil || bySize(m, largest[k]) < 0 {
			largest[k] = m
			out.Triggers[k] = m.Trigger
		}
	}
	return out
}

// Between lists the marks that were made from one moment on and before another one,
// largest first.
func Between(marks []Mark, from, to time.Time) []Mark {
	var out []Mark
	for i := range marks {
		if made := marks[i].Made; !made.Before(from) && made.Before(to) {
			out = append(out, marks[i])
		}
	}
	slices.SortStableFunc(out, func(a, b Mark) int { return bySize(&a, &b) })
	return out
}

// notable is the part of a source's traffic from which on a move counts as an effect of
// its trigger.
const notable = 0.01

// Events lists the changes of health, of the configuration and by operators among marks, in
// their order. A health change counts if it moved enough: endpoints come and go all the time.
// So does one of the configuration, unless it moved nothing: it adds or removes a service.
func Events(marks []Mark) []Mark {
	out := []Mark{}
	for i := range marks {
		m := &marks[i]
		switch m.Trigger {
		case plan.TriggerOperator:
		case plan.TriggerHealth:
			if m.Moved < notable {
				continue
			}
		case plan.TriggerTopology:
			if m.Moved > 0 && m.Moved < notable {
				continue
			}
		default:
			continue
		}
		out = append(out, *m)
	}
	return out
}

// bySize orders the larger of two changes first. A health change, or another one with a
// trigger of its own, precedes regular decisions if it moved enough: decisions often
// follow from it.
func bySize(a, b *Mark) int {
	own := func(m *Mark) int {
		if m.Trigger == plan.TriggerTick {
			return 0
		}
		return 1
	}
	large := func(m *Mark) int {
		if m.Moved < notable {
			return 0
		}
		return own(m)
	}
	return cmp.Or(cmp.Compare(large(b), large(a)), cmp.Compare(b.Moved, a.Moved), cmp.Compare(own(b), own(a)), cmp.Compare(b.Version, a.Version))
}

// Standing finds the last change at or before a moment among marks; -1 where there is
// none. The order of the changes decides, also where the clock was set back.
func Standing(marks []Mark, at time.Time) int {
	for i := range slices.Backward(marks) {
		if !marks[i].Made.After(at) {
			return i
		}
	}
	return -1
}
