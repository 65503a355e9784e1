package solver_test

import (
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// nearCapacity makes a random service whose demand varies and, in many cases, fills
// localities up to their capacity.
func nearCapacity(seed uint64) solver.Service {
	rng := rand.New(rand.NewPCG(seed, 5))
	s := randomService(rng, 2+rng.IntN(8), 2+rng.IntN(8), 0.5+0.5*rng.Float64())
	if rng.IntN(2) == 0 {
		isolate(rng, &s, 0.4*rng.Float64())
	}
	s.Variability = make([]float64, len(s.Demand))
	for i := range s.Variability {
		s.Variability[i] = 0.6 * rng.Float64()
	}
	return s
}

// descend moves demand from one locality to another for as long as that lowers the
// cost, and gives the least cost.
func descend(s *solver.Service, flows [][]float64) float64 {
	best := solver.Objective(*s, flows)
	move := func(i, from, to int, rate float64) bool {
		rate = min(rate, flows[i][from])
		if rate <= 0 || s.Allowed != nil && !s.Allowed[i][to] || s.Localities[to].Capacity == 0 {
			return false
		}
		flows[i][from] -= rate
		flows[i][to] += rate
		if withinCeilings(*s, flows) {
			if v := solver.Objective(*s, flows); v < best {
				best = v
				return true
			}
		}
		flows[i][from] += rate
		flows[i][to] -= rate
		return false
	}
	for step := 50.0; step > 1e-3; step /= 2 {
		for range 40 {
			some := false
			for i := range flows {
				for from := range flows[i] {
					for to := range flows[i] {
						if from != to && move(i, from, to, step) {
							some = true
						}
					}
				}
			}
			if !some {
				break
			}
		}
	}
	return best
}

// Near a capacity, where the slope of queues grows fast, the bound is close to what the
// flows cost, too: no large gap is told where there is none. Of the first three seeds a
// gap of 4.8%, 1.1% and 100% was told.
func TestVariabilityBoundNearCapacity(t *testing.T) {
	seeds := []uint64{976, 5752, 5807}
	for seed := range uint64(300) {
		seeds = append(seeds, seed)
	}
	for i, seed := range seeds {
		s := nearCapacity(seed)
		sol := solveOne(t, s)
		if sol.Variability == nil {
			continue // it does not fit
		}
		if sol.Gap > 0.015 {
			t.Errorf("seed %d: a gap of %.1f%% is told", seed, 100*sol.Gap)
		}
		if i >= 10 {
			continue
		}
		if least := descend(&s, sol.Flows); sol.LowerBound > least*(1+1e-9) || sol.Objective > 1.005*least {
			t.Errorf("seed %d: an objective of %v and a bound of %v are told, flows are found that cost %v", seed, sol.Objective, sol.LowerBound, least)
		}
	}
}
