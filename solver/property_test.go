package solver_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/solver"
)

// drawService draws a problem with a load of at least 0.2 of the ceilings.
func drawService(t *rapid.T, high float64) solver.Service {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	sources, localities := rapid.IntRange(1, 12).Draw(t, "sources"), rapid.IntRange(1, 12).Draw(t, "localities")
	s := randomService(rng, sources, localities, rapid.Float64Range(0.2, high).Draw(t, "load"))
	if rapid.Bool().Draw(t, "isolated") {
		isolate(rng, &s, 0.5)
	}
	return s
}

func must(t *rapid.T, s solver.Service) solver.ServiceSolution {
	t.Helper()
	sol, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		t.Fatal(err)
	}
	if err := solver.Check(s, sol.Services[0]); err != nil {
		t.Fatal(err)
	}
	return sol.Services[0]
}

// near compares two costs of a service to what ties may cost, and to how far from
// its optimum either may be.
func near(s solver.Service, a, b float64) bool {
	return math.Abs(a-b) <= 1e-4*math.Abs(a)+tieMS*sum(s.Demand)
}

func TestPermutationChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.4)
		rows := rapid.Permutation(indices(len(s.Demand))).Draw(t, "rows")
		columns := rapid.Permutation(indices(len(s.Localities))).Draw(t, "columns")
		p := solver.Service{}
		for _, i := range rows {
			p.Demand = append(p.Demand, s.Demand[i])
			p.Latency = append(p.Latency, pick(s.Latency[i], columns))
			p.Price = append(p.Price, pick(s.Price[i], columns))
			if s.Allowed != nil {
				p.Allowed = append(p.Allowed, pick(s.Allowed[i], columns))
			}
		}
		p.Localities = pick(s.Localities, columns)
		a, b := must(t, s), must(t, p)
		if !near(s, a.Objective, b.Objective) || !near(s, a.LowerBound, b.LowerBound) {
			t.Fatalf("objective %v, permuted %v; bound %v, permuted %v", a.Objective, b.Objective, a.LowerBound, b.LowerBound)
		}
		for j, l := range columns {
			if math.Abs(a.Scale[l]-b.Scale[j]) > 1e-9*a.Scale[l] {
				t.Fatalf("scale %v, permuted %v", a.Scale[l], b.Scale[j])
			}
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func pick[T any](from []T, order []int) []T {
	out := make([]T, len(order))
	for i, j := range order {
		out[i] = from[j]
	}
	return out
}

// Requests counted in another unit, and time with them, leave the total alone.
func TestScaling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.2)
		k := math.Exp(rapid.Float64Range(-4, 4).Draw(t, "factor"))
		scaled := s
		scaled.Demand = times(k, s.Demand)
		scaled.Localities = nil
		for _, l := range s.Localities {
			l.Capacity *= k
			l.Unmanaged *= k
			scaled.Localities = append(scaled.Localities, l)
		}
		scaled.Latency, scaled.Price = nil, nil
		for i := range s.Latency {
			scaled.Latency = append(scaled.Latency, times(1/k, s.Latency[i]))
			scaled.Price = append(scaled.Price, times(1/k, s.Price[i]))
		}
		a, b := must(t, s), must(t, scaled)
		if math.Abs(a.LowerBound-b.LowerBound) > 1e-5*a.LowerBound+1e-9 {
			t.Fatalf("bound %v, scaled by %v %v", a.LowerBound, k, b.LowerBound)
		}
	})
}

func times(k float64, values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = k * v
	}
	return out
}

// The same problem gives the same bytes, whatever was solved before it.
func TestDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, other := drawService(t, 1.4), drawService(t, 1.4)
		first, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
		if err != nil {
			t.Fatal(err)
		}
		both, err := solver.Solve(solver.Problem{Services: []solver.Service{other, s}})
		if err != nil {
			t.Fatal(err)
		}
		if a, b := bytes(t, first.Services[0]), bytes(t, both.Services[1]); a != b {
			t.Fatalf("not the same answer:\n%s\n%s", a, b)
		}
	})
}

func bytes(t *rapid.T, sol solver.ServiceSolution) string {
	t.Helper()
	// %x prints all digits of a number.
	return fmt.Sprintf("%x %x %x %x %x", sol.Flows, sol.Prices, sol.Scale, sol.Shed, sol.LowerBound)
}

func TestWarmStartKeepsQuality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.3)
		cold := must(t, s)
		warm := s
		warm.WarmPrices = times(math.Exp(rapid.Float64Range(-3, 3).Draw(t, "off")), cold.Prices)
		sol := must(t, warm)
		if !near(s, cold.Objective, sol.Objective) || !near(s, cold.LowerBound, sol.LowerBound) {
			t.Fatalf("cold %v (bound %v), warm %v (bound %v)", cold.Objective, cold.LowerBound, sol.Objective, sol.LowerBound)
		}
	})
}

// boundWith returns what a solution proves with these prices.
func boundWith(t *rapid.T, s solver.Service, sol solver.ServiceSolution, prices []float64) float64 {
	t.Helper()
	sol.Prices = prices
	bound, err := solver.TotalBound(solver.Problem{Services: []solver.Service{s}}, []solver.ServiceSolution{sol})
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

// No prices at all may lift the bound above what flows really cost.
func TestBoundHoldsForAnyPrices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.3)
		sol := must(t, s)
		prices := make([]float64, len(s.Localities))
		for l := range prices {
			prices[l] = sol.Prices[l]*rapid.Float64Range(0, 2).Draw(t, "factor") + rapid.Float64Range(-5, 5).Draw(t, "shift")
		}
		if b := boundWith(t, s, sol, prices); b > sol.Objective*(1+1e-9) {
			t.Fatalf("bound %v above the cost %v of flows that exist", b, sol.Objective)
		}
		if b := boundWith(t, s, sol, sol.Prices); sol.LowerBound > b {
			t.Fatalf("published bound %v, recomputed %v", sol.LowerBound, b)
		}
	})
}

func TestMoreDemandCostsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 0.9)
		more := s
		more.Demand = append([]float64(nil), s.Demand...)
		i := rapid.IntRange(0, len(s.Demand)-1).Draw(t, "source")
		more.Demand[i] *= 1.05
		a, b := must(t, s), must(t, more)
		if b.CeilingScale > 1 {
			return // other ceilings, another problem
		}
		if b.Objective < a.LowerBound*(1-1e-9) {
			t.Fatalf("more demand costs less: %v before, %v after", a.LowerBound, b.Objective)
		}
	})
}

func TestHigherCeilingsNeverCostMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 0.95)
		raised := s
		raised.Localities = nil
		for _, l := range s.Localities {
			if l.Ceiling == 0 {
				l.Ceiling = 0.8
			}
			l.Ceiling = min(1, l.Ceiling*1.05)
			raised.Localities = append(raised.Localities, l)
		}
		a, b := must(t, s), must(t, raised)
		if a.CeilingScale == 1 && b.LowerBound > a.Objective*(1+1e-9) {
			t.Fatalf("higher ceilings cost more: %v before, %v after", a.Objective, b.LowerBound)
		}
	})
}

// A price is what one more request/s costs: the difference that a little more
// demand makes.
func TestPricesAreMarginalCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 0.9)
		a := must(t, s)
		if a.CeilingScale > 1 {
			return
		}
		i := rapid.IntRange(0, len(s.Demand)-1).Draw(t, "source")
		worth := math.Inf(1)
		for l := range s.Localities {
			if s.Allowed == nil || s.Allowed[i][l] {
				worth = min(worth, s.Latency[i][l]+s.Price[i][l]+a.Prices[l])
			}
		}
		// The cost is convex in demand, and a price is a slope of it.
		more := s
		more.Demand = append([]float64(nil), s.Demand...)
		step := 0.01 * sum(s.Demand)
		more.Demand[i] += step
		b := must(t, more)
		if b.CeilingScale > 1 {
			return
		}
		if b.Objective < a.LowerBound+step*worth-1e-6*a.Objective {
			t.Fatalf("price %v, but %v more demand costs only %v", worth, step, b.Objective-a.LowerBound)
		}
	})
}
