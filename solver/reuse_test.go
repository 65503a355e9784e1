package solver_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/solver"
)

// TestReuseIsExact: where the last prices prove that the last shares still are
// as good as ties may be, they are the answer without being solved for, and a
// full solution gives the same flows.
func TestReuseIsExact(t *testing.T) {
	reused, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.3)
		first := must(t, s)
		spread := rapid.Float64Range(0, 0.1).Draw(t, "spread")
		for i := range s.Demand {
			s.Demand[i] *= 1 + spread*rapid.Float64Range(-1, 1).Draw(t, "change")
		}
		s.Previous = first.Flows
		full := must(t, s)
		s.WarmPrices = first.Prices
		quick := must(t, s)
		all++
		if quick.Iterations > 0 {
			return
		}
		reused++
		// A part that demand fills to the last digit is solved on its own, with
		// rooms that are rounded.
		if d := distance(full.Flows, quick.Flows); d > 1e-9 {
			t.Fatalf("flows differ by %v of the load", d)
		}
		if quick.ExcessMS > tieMS || quick.LowerBound > full.Objective {
			t.Fatalf("excess %v ms, bound %v above objective %v", quick.ExcessMS, quick.LowerBound, full.Objective)
		}
	})
	if reused == 0 {
		t.Errorf("nothing was reused in %d problems", all)
	}
	t.Logf("%d of %d", reused, all)
}

// TestReusePricesThatProveNothing: prices that are far off only cost the time
// of finding that out.
func TestReusePricesThatProveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 0.9)
		first := must(t, s)
		s.Previous = first.Flows
		s.WarmPrices = make([]float64, len(s.Localities))
		for l := range s.WarmPrices {
			s.WarmPrices[l] = rapid.Float64Range(0, 1e4).Draw(t, "price")
		}
		again := must(t, s)
		if err := solver.Check(s, again); err != nil {
			t.Fatal(err)
		}
		if again.ExcessMS > tieMS {
			t.Fatalf("excess %v ms", again.ExcessMS)
		}
	})
}
