package solver_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

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
