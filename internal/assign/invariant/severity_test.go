package invariant_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

func TestMilder(t *testing.T) {
	broken := func(rule string, rate float64) invariant.Violation {
		return invariant.Violation{Rule: rule, Rate: rate}
	}
	// Each is milder than all that follow.
	order := [][]invariant.Violation{
		nil,
		{broken(invariant.RuleDrain, 0)},
		{broken(invariant.RuleFailover, 0), broken(invariant.RuleStep, 0)},
		{broken(invariant.RuleStep, 5)},
		{broken(invariant.RuleCeiling, 5), broken(invariant.RuleUnhealthy, 1)},
		{broken(invariant.RuleWeights, 0)},
		{broken(invariant.RuleWeights, 0), broken(invariant.RuleStep, 1)},
		{broken(invariant.RuleRealised, 0), broken(invariant.RuleUnique, 0)},
	}
	for i, a := range order {
		for k, b := range order {
			if got := invariant.Milder(a, b); got != (i < k) {
				t.Errorf("%v milder than %v: %v", a, b, got)
			}
		}
	}
	if invariant.Milder([]invariant.Violation{broken(invariant.RuleStep, 5)}, []invariant.Violation{broken(invariant.RuleCeiling, 5*(1+1e-12))}) {
		t.Error("a difference in rounding counts")
	}
}
