package plan

import (
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
)

// check vets a result by rules that share nothing with what made it.
func check(in assign.Input, result *assign.Result, now time.Time) []assign.Violation {
	violations := assign.Check(in.Previous, result, assign.CheckInput{
		Service: in.Service, Sources: in.Sources, Trigger: in.Trigger, Hold: in.Hold,
	})
	for i := range violations {
		violations[i].At = now
	}
	return violations
}
