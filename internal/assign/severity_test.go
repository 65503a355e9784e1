package assign_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/assign"
)

func TestMilder(t *testing.T) {
	broken := func(rule string, rate float64) assign.Violation { return assign.Violation{Rule: rule, Rate: rate} }
	// Each is milder than all that follow.
	order := [][]assign.Violation{
		nil,
		{broken(assign.RuleDrain, 0)},
		{broken(assign.RuleStep, 0), broken(assign.RuleStep, 0)},
		{broken(assign.RuleStep, 5)},
		{broken(assign.RuleCeiling, 5), broken(assign.RuleUnhealthy, 1)},
		{broken(assign.RuleWeights, 0)},
		{broken(assign.RuleWeights, 0), broken(assign.RuleStep, 1)},
		{broken(assign.RuleRealised, 0), broken(assign.RuleUnique, 0)},
	}
	for i, a := range order {
		for k, b := range order {
			if got := assign.Milder(a, b); got != (i < k) {
				t.Errorf("%v milder than %v: %v", a, b, got)
			}
		}
	}
	if assign.Milder([]assign.Violation{broken(assign.RuleStep, 5)}, []assign.Violation{broken(assign.RuleCeiling, 5*(1+1e-12))}) {
		t.Error("a difference in rounding counts")
	}
}
