package plan

import (
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// decide assigns a service and vets the result. What the check refuses is not
// published if there is something better: what was published, carried over to
// current health. That may break rules too, for example where demand or
// capacity changed, so it is vetted as well and has to do less harm.
func decide(in assign.Input, now time.Time) (*assign.Result, []invariant.Violation) {
	return vet(in, assign.Assign(in), now)
}

func vet(in assign.Input, result *assign.Result, now time.Time) (*assign.Result, []invariant.Violation) {
	refused := check(in, result, now)
	if len(refused) == 0 || in.Previous == nil {
		return result, refused
	}
	in.Trigger = assign.Rebase
	in.Refused = refused[0].Rule + ": " + refused[0].Text
	fallback := assign.Assign(in)
	left := check(in, fallback, now)
	if !invariant.Milder(left, refused) {
		return result, refused
	}
	for i := range left {
		left[i].Text = "what was published before, too: " + left[i].Text
	}
	return fallback, append(refused, left...)
}

// check vets a result by rules that share nothing with what made it.
func check(in assign.Input, result *assign.Result, now time.Time) []invariant.Violation {
	violations := invariant.Check(in.Previous, result, invariant.CheckInput{
		Service: in.Service, Sources: in.Sources, Trigger: in.Trigger, Hold: in.Hold, Pace: in.Pace,
	})
	for i := range violations {
		violations[i].At = now
	}
	return violations
}
