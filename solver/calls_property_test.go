package solver_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/solver"
)

func drawCalls(t *rapid.T, high float64) solver.Problem {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	services, localities := rapid.IntRange(2, 5).Draw(t, "services"), rapid.IntRange(1, 8).Draw(t, "localities")
	load := rapid.Float64Range(0.2, high).Draw(t, "load")
	return randomCalls(rng, services, localities, func() float64 { return load * rng.Float64() }, rapid.Bool().Draw(t, "restrict"))
}

func mustAll(t rapid.TB, p solver.Problem) solver.Solution {
	t.Helper()
	sol, err := solver.Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := solver.CheckAll(p, sol); err != nil {
		t.Fatal(err)
	}
	return sol
}

// nearAll is near for a problem with calls.
func nearAll(p solver.Problem, a, b float64) bool {
	demand := 0.0
	for _, s := range p.Services {
		demand += sum(s.Demand)
	}
	return math.Abs(a-b) <= 1e-4*math.Abs(a)+tieMS*demand
}

func TestOrderOfServicesChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawCalls(t, 1.3)
		order := rapid.Permutation(indices(len(p.Services))).Draw(t, "order")
		at := make([]int, len(order))
		for k, i := range order {
			at[i] = k
		}
		var q solver.Problem
		for _, i := range order {
			s := p.Services[i]
			s.Calls = nil
			for _, c := range p.Services[i].Calls {
				s.Calls = append(s.Calls, solver.Call{Service: at[c.Service], PerRequest: c.PerRequest})
			}
			s.Latency, s.Price = reorder(p, i, order, s.Latency), reorder(p, i, order, s.Price)
			s.Allowed = reorder(p, i, order, s.Allowed)
			q.Services = append(q.Services, s)
		}
		a, b := mustAll(t, p), mustAll(t, q)
		if !nearAll(p, a.Objective, b.Objective) || !nearAll(p, a.LowerBound, b.LowerBound) {
			t.Fatalf("objective %v, reordered %v; bound %v, reordered %v", a.Objective, b.Objective, a.LowerBound, b.LowerBound)
		}
	})
}

// reorder puts the rows of service i's sources in the order of its callers.
func reorder[T any](p solver.Problem, i int, order []int, rows [][]T) [][]T {
	if rows == nil {
		return nil
	}
	own := len(p.Services[i].Demand)
	first := map[int]int{}
	at := own
	for j, s := range p.Services {
		for _, c := range s.Calls {
			if c.Service == i {
				first[j] = at
				at += len(s.Localities)
			}
		}
	}
	out := append([][]T(nil), rows[:own]...)
	for _, j := range order {
		if from, ok := first[j]; ok {
			out = append(out, rows[from:from+len(p.Services[j].Localities)]...)
		}
	}
	return out
}

// No prices at all may lift the bound above what flows really cost.
func TestTotalBoundHoldsForAnyPrices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawCalls(t, 1.3)
		sol := mustAll(t, p)
		for i := range sol.Services {
			prices := sol.Services[i].Prices
			for l := range prices {
				prices[l] = prices[l]*rapid.Float64Range(0, 2).Draw(t, "factor") + rapid.Float64Range(-5, 5).Draw(t, "shift")
			}
		}
		if b, err := solver.TotalBound(p, sol.Services); err != nil || b > sol.Objective*(1+1e-9) {
			t.Fatalf("bound %v above the cost %v of flows that exist (%v)", b, sol.Objective, err)
		}
	})
}

// A caller whose calls cost nothing is solved as if it made none.
func TestFreeCallsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { freeCallsChangeNothing(t, drawService(t, 0.95)) })
}

func freeCallsChangeNothing(t rapid.TB, s solver.Service) {
	t.Helper()
	n := len(s.Localities)
	free := solver.Service{Localities: []solver.Locality{{Capacity: 1e9}}, Latency: make([][]float64, n)}
	for l := range free.Latency {
		free.Latency[l] = []float64{0}
	}
	caller := s
	caller.Calls = []solver.Call{{Service: 1, PerRequest: 0.5}}
	alone, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		t.Fatal(err)
	}
	with := mustAll(t, solver.Problem{Services: []solver.Service{caller, free}})
	if !near(s, alone.Objective, with.Objective) || !near(s, alone.LowerBound, with.LowerBound) {
		t.Fatalf("alone %v (bound %v), with free calls %v (bound %v)", alone.Objective, alone.LowerBound, with.Objective, with.LowerBound)
	}
}
