package solver_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// bruteForce finds the best flows of a service with two degrees of freedom
// (one source and three localities, or two and two) by grids that shrink around
// the best point. It knows nothing but Objective and the ceilings.
func bruteForce(s solver.Service) float64 {
	const steps = 24
	flows := func(a, b float64) [][]float64 {
		if len(s.Demand) == 1 {
			d := s.Demand[0]
			return [][]float64{{a * d, (1 - a) * b * d, (1 - a) * (1 - b) * d}}
		}
		return [][]float64{{a * s.Demand[0], (1 - a) * s.Demand[0]}, {b * s.Demand[1], (1 - b) * s.Demand[1]}}
	}
	best, bestA, bestB := math.Inf(1), 0.5, 0.5
	for width := 0.5; width > 1e-9; width *= 0.8 {
		a0, b0 := bestA, bestB
		for i := range steps + 1 {
			for j := range steps + 1 {
				a := min(1, max(0, a0+width*(2*float64(i)/steps-1)))
				b := min(1, max(0, b0+width*(2*float64(j)/steps-1)))
				x := flows(a, b)
				if fits(s, x) {
					if v := solver.Objective(s, x); v < best {
						best, bestA, bestB = v, a, b
					}
				}
			}
		}
	}
	return best
}

func fits(s solver.Service, flows [][]float64) bool {
	for l, loc := range s.Localities {
		y := 0.0
		for i := range flows {
			if flows[i][l] > 0 && s.Allowed != nil && !s.Allowed[i][l] {
				return false
			}
			y += flows[i][l]
		}
		if y > headroom(loc)*(1+1e-13) {
			return false
		}
	}
	return true
}

func headroom(l solver.Locality) float64 {
	ceiling := l.Ceiling
	if ceiling == 0 {
		ceiling = 0.8
	}
	return math.Max(0, ceiling*l.Capacity-l.Unmanaged)
}

func TestAgainstBruteForce(t *testing.T) {
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(3, i))
		sources, localities := 1, 3
		if i%2 == 0 {
			sources, localities = 2, 2
		}
		s := randomService(rng, sources, localities, 0.2+0.75*rng.Float64())
		for j := range s.Demand {
			s.Demand[j] = max(s.Demand[j], 1e-3)
		}
		sol := solveOne(t, s)
		if sol.CeilingScale > 1 {
			continue // no flows fit
		}
		want := bruteForce(s)
		tie := 0.0101 * (sum(s.Demand))
		if sol.Objective > want*(1+1e-6)+tie || sol.LowerBound > want*(1+1e-9) {
			t.Errorf("problem %d: objective %v with bound %v, brute force finds %v", i, sol.Objective, sol.LowerBound, want)
		}
	}
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

// TestOverflowAgainstSubsets compares the factor of overflow with the hardest
// of all subsets of sources, each by bisection.
func TestOverflowAgainstSubsets(t *testing.T) {
	for i := range uint64(200) {
		rng := rand.New(rand.NewPCG(11, i))
		s := randomService(rng, 1+rng.IntN(7), 1+rng.IntN(7), 0.4+1.2*rng.Float64())
		isolate(rng, &s, 0.6*rng.Float64())
		want := 1.0
		for subset := 1; subset < 1<<len(s.Demand); subset++ {
			want = max(want, factorOf(s, subset))
		}
		sol := solveOne(t, s)
		if math.Abs(sol.CeilingScale-want) > 1e-7*want {
			t.Errorf("problem %d: ceilings raised by %v, the hardest subset needs %v", i, sol.CeilingScale, want)
		}
		if err := solver.Check(s, sol); err != nil {
			t.Errorf("problem %d: %v", i, err)
		}
	}
}

// factorOf is the factor that a subset of the sources needs.
func factorOf(s solver.Service, subset int) float64 {
	demand := 0.0
	near := make([]bool, len(s.Localities))
	for i, d := range s.Demand {
		if subset&(1<<i) == 0 || d == 0 {
			continue
		}
		demand += d
		for l := range near {
			near[l] = near[l] || s.Allowed[i][l]
		}
	}
	lo, hi := 1.0, 1e6
	for range 100 {
		mid := (lo + hi) / 2
		total := 0.0
		for l, loc := range s.Localities {
			if near[l] {
				raised := loc
				if raised.Ceiling == 0 {
					raised.Ceiling = 0.8
				}
				raised.Ceiling *= mid
				total += headroom(raised)
			}
		}
		if total < demand {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
