package solver_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

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
