package solver_test

import (
	"fmt"
	"math"
	"math/rand/v2"
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
		// headrooms that are rounded.
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

// TestWarmStartsSave: with the prices of the last solution it takes fewer
// iterations than without, also where localities are very different, and with
// prices that lead astray not many more.
func TestWarmStartsSave(t *testing.T) {
	for _, tt := range []struct {
		noise float64 // of demand since then
		most  float64 // iterations, as a part of those of cold starts
	}{{0.005, 0.9}, {0.03, 0.9}, {0.2, 1.1}, {0.9, 2}} {
		warm, cold := 0, 0
		for seed := range uint64(8) {
			s := resolved(t, rand.New(rand.NewPCG(seed, 2)), 40, 0.7, tt.noise)
			warm += iterations(t, s)
			s.WarmPrices = nil
			cold += iterations(t, s)
		}
		if got := float64(warm) / float64(cold); got > tt.most {
			t.Errorf("demand moved by up to %v: %d iterations with prices, %d without", tt.noise, warm, cold)
		}
	}
}

// TestWarmStartsAreGivenUp: prices of nothing that there is cost little.
func TestWarmStartsAreGivenUp(t *testing.T) {
	warm, cold := 0, 0
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := randomService(rng, 40, 40, 0.7)
		cold += iterations(t, s)
		for range s.Localities {
			s.WarmPrices = append(s.WarmPrices, math.Exp(8*rng.Float64()))
		}
		warm += iterations(t, s)
	}
	if float64(warm) > 2.5*float64(cold) {
		t.Errorf("%d iterations with wrong prices, %d without any", warm, cold)
	}
}

func iterations(t *testing.T, s solver.Service) int {
	t.Helper()
	sol, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		t.Fatal(err)
	}
	if sol.Gap > 1e-4 {
		t.Errorf("a gap of %v", sol.Gap)
	}
	return sol.Services[0].Iterations
}

// TestStuck are problems on which the method once took tiny steps, far from the
// optimum: localities with few servers a queue, whose curves are flat up to a
// point, are far beyond their load at first.
func TestStuck(t *testing.T) {
	for _, seed := range []uint64{29083, 42302, 55030, 100794, 137925} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 77))
			s := randomService(rng, 1+rng.IntN(12), 1+rng.IntN(12), 0.2+rng.Float64()*0.75)
			if rng.IntN(2) == 0 {
				isolate(rng, &s, 0.5)
			}
			sol := solveOne(t, s)
			if err := solver.Check(s, sol); err != nil {
				t.Error(err)
			}
			if sol.ExcessMS > tieMS {
				t.Errorf("gap %.3g, excess %.3g ms, %d iterations", sol.Gap, sol.ExcessMS, sol.Iterations)
			}
			freeCallsChangeNothing(t, s)
		})
	}
}

// TestCallsStuck are problems on which the joint method once ended after a few
// iterations, far from the optimum: what isolation leaves of a service, or a
// whole one, is far beyond its capacity, so that the price of some localities is
// 10^4 times that of others.
func TestCallsStuck(t *testing.T) {
	t.Run("free calls", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(0x153e, 0))
		s := randomService(rng, 5, 12, 0.25)
		isolate(rng, &s, 0.5)
		freeCallsChangeNothing(t, s)
	})
	for _, seed := range []uint64{240, 381, 632, 995, 2817, 3089, 4695, 4825} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 78))
			high := 0.3 + 1.3*rng.Float64()
			p := randomCalls(rng, 2+rng.IntN(4), 1+rng.IntN(8), func() float64 { return high * rng.Float64() }, rng.IntN(2) == 0)
			sol := mustAll(t, p)
			if sol.Gap > 1e-4 || sol.ExcessMS > tieMS {
				t.Errorf("gap %.3g, excess %.3g ms, %d iterations", sol.Gap, sol.ExcessMS, sol.Services[0].Iterations)
			}
		})
	}
}
