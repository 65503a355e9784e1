package solver_test

import (
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// TestRandomProblems is the quality that callers are promised: gap <= 0.5% and
// excess <= 0.1 ms, all constraints kept, from light load to overflow.
func TestRandomProblems(t *testing.T) {
	for i := range uint64(200) {
		rng := rand.New(rand.NewPCG(7, i))
		load := 0.3 + rng.Float64()
		s := randomService(rng, 2+rng.IntN(49), 2+rng.IntN(49), load)
		if i%4 == 3 {
			isolate(rng, &s, 0.2+0.6*rng.Float64())
		}
		if i%5 == 4 {
			s.MaxShed = rng.Float64() * 0.2
		}
		sol := solveOne(t, s)
		if sol.Gap > 2e-4 || sol.ExcessMS > tieMS {
			t.Errorf("problem %d: %dx%d at load %.3f: gap %.3g, excess %.3g ms, %d iterations",
				i, len(s.Demand), len(s.Localities), load, sol.Gap, sol.ExcessMS, sol.Iterations)
		}
		if err := solver.Check(s, sol); err != nil {
			t.Errorf("problem %d: %v", i, err)
		}
	}
}

// TestCallGraphs is the quality that callers are promised, proved by our own
// certificate, with all constraints kept from light load to overflow.
func TestCallGraphs(t *testing.T) {
	for i := range uint64(300) {
		p := callsProblem(i)
		sol, err := solver.Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		if sol.Gap > 5e-4 || sol.ExcessMS > tieMS {
			t.Errorf("problem %d: %d services: gap %.3g, excess %.3g ms", i, len(p.Services), sol.Gap, sol.ExcessMS)
		}
		if err := solver.CheckAll(p, sol); err != nil {
			t.Errorf("problem %d: %v", i, err)
		}
		if bound, err := solver.TotalBound(p, sol.Services); err != nil || sol.LowerBound > bound {
			t.Errorf("problem %d: bound %v, recomputed %v, %v", i, sol.LowerBound, bound, err)
		}
	}
}

// TestLargeCallGraphs: dozens of services keep the promise too.
func TestLargeCallGraphs(t *testing.T) {
	for i := range uint64(4) {
		rng := rand.New(rand.NewPCG(9, i))
		p := randomCalls(rng, 24, 10, func() float64 { return 0.3 + 0.7*rng.Float64() }, i == 3)
		sol, err := solver.Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		if sol.Gap > 1e-4 || sol.ExcessMS > tieMS {
			t.Errorf("problem %d: gap %.3g, excess %.3g ms", i, sol.Gap, sol.ExcessMS)
		}
		if err := solver.CheckAll(p, sol); err != nil {
			t.Errorf("problem %d: %v", i, err)
		}
	}
}
