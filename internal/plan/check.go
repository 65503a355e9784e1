package plan

import (
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
)

// decide assigns a service and vets the result. What the check refuses is not
// published if there is something better: what was published, carried over to
// current health. That may break rules too, for example where demand or
// capacity changed, so it is vetted as well and has to do less harm.
func decide(in assign.Input, now time.Time) (*assign.Result, []assign.Violation) {
	return vet(in, assign.Assign(in), now)
}

func vet(in assign.Input, result *assign.Result, now time.Time) (*assign.Result, []assign.Violation) {
	refused := check(in, result, now)
	if len(refused) == 0 || in.Previous == nil {
		return result, refused
	}
	in.Trigger = assign.Rebase
	in.Refused = refused[0].Rule + ": " + refused[0].Text
	fallback := assign.Assign(in)
	left := check(in, fallback, now)
	if !assign.Milder(left, refused) {
		return result, refused
	}
	for i := range left {
		left[i].Text = "what was published before, too: " + left[i].Text
	}
	return fallback, append(refused, left...)
}

// check vets a result by rules that share nothing with what made it.
func check(in assign.Input, result *assign.Result, now time.Time) []assign.Violation {
	violations := assign.Check(in.Previous, result, assign.CheckInput{
		Service: in.Service, Sources: in.Sources, Trigger: in.Trigger, Hold: in.Hold, Pace: in.Pace,
	})
	for i := range violations {
		violations[i].At = now
	}
	return violations
}
