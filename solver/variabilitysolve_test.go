package solver_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/solver"
)

// drawVariable draws a service whose demand fits and varies.
func drawVariable(t *rapid.T) solver.Service {
	s := drawService(t, 0.8)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "variability"), 1))
	s.Variability = make([]float64, len(s.Demand))
	for i := range s.Variability {
		if rng.IntN(3) > 0 {
			s.Variability[i] = 0.6 * rng.Float64()
		}
	}
	return s
}

// randomFlows places demand somewhere it may go, ceilings or not.
func randomFlows(rng *rand.Rand, s solver.Service, near [][]float64) [][]float64 {
	out := make([][]float64, len(near))
	for i, row := range near {
		out[i] = append([]float64(nil), row...)
		from, to := rng.IntN(len(row)), rng.IntN(len(row))
		if s.Allowed != nil && !s.Allowed[i][to] || s.Localities[to].Capacity == 0 {
			continue
		}
		part := rng.Float64() * out[i][from]
		out[i][from] -= part
		out[i][to] += part
	}
	return out
}

func withinCeilings(s solver.Service, flows [][]float64) bool {
	for l, loc := range s.Localities {
		ceiling := loc.Ceiling
		if ceiling == 0 {
			ceiling = 0.8
		}
		load := loc.Unmanaged
		for i := range flows {
			load += flows[i][l]
		}
		if load > ceiling*loc.Capacity {
			return false
		}
	}
	return true
}

// calm reports whether load stays clear of the capacity, variability included. Beyond it
// queues cost so much that a gap is told, and not closed.
func calm(s solver.Service, flows [][]float64) bool {
	for l, loc := range s.Localities {
		load, square := loc.Unmanaged, 0.0
		for i := range flows {
			load += flows[i][l]
			square += s.Variability[i] * flows[i][l] * s.Variability[i] * flows[i][l]
		}
		if load+math.Sqrt(square) > 0.9*loc.Capacity {
			return false
		}
	}
	return true
}

// Variable demand is solved as well as steady demand: certified, and no flows that
// keep the constraints cost less than the bound.
func TestVariableDemandIsCertified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawVariable(t)
		sol := must(t, s)
		if sol.Variability == nil {
			return // it does not fit, or no served demand varies
		}
		if sol.LowerBound > sol.Objective || (calm(s, sol.Flows) && sol.Gap > 0.005) {
			t.Fatalf("objective %v, bound %v, gap %v", sol.Objective, sol.LowerBound, sol.Gap)
		}
		if got := solver.Objective(s, sol.Flows); math.Abs(got-sol.Objective) > 1e-9*got {
			t.Fatalf("objective %v, told %v", got, sol.Objective)
		}
		bound := boundWith(t, s, sol, sol.Prices)
		if math.Abs(math.Min(bound, sol.Objective)-sol.LowerBound) > 1e-9*sol.Objective {
			t.Fatalf("bound %v, told %v", bound, sol.LowerBound)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), 2))
		for range 50 {
			other := randomFlows(rng, s, sol.Flows)
			if cost := solver.Objective(s, other); withinCeilings(s, other) && cost < bound*(1-1e-9) {
				t.Fatalf("flows cost %v, less than the bound of %v", cost, bound)
			}
		}
		for l := range sol.Prices { // wrong prices prove less, never too much
			wrong := append([]float64(nil), sol.Prices...)
			wrong[l] *= rng.Float64() * 2
			if b := boundWith(t, s, sol, wrong); b > sol.Objective*(1+1e-9) {
				t.Fatalf("prices %v prove %v of %v", wrong, b, sol.Objective)
			}
		}
	})
}

func TestAnswerToVariableDemandStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawVariable(t)
		first := must(t, s)
		s.Previous, s.Last, s.WarmPrices, s.WarmVariability = first.Flows, first.Flows, first.Prices, first.Variability
		second := must(t, s)
		if d := distance(first.Flows, second.Flows); d > 1e-9 {
			t.Fatalf("flows moved by %v without a cause", d)
		}
	})
}

// Without variability nothing changes.
func TestNoVariability(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.3)
		without := must(t, s)
		s.Variability = make([]float64, len(s.Demand))
		if with := must(t, s); !reflect.DeepEqual(without, with) {
			t.Fatal("a variability of 0 changes the solution")
		}
	})
}

// Two equal zones, and one of two equal sources varies: it is spread over both, and
// the other one makes headroom.
func TestVariableDemandIsSpread(t *testing.T) {
	at := solver.Locality{Capacity: 1000, Servers: 40, Queues: 8}
	s := solver.Service{
		Demand: []float64{600, 600}, Localities: []solver.Locality{at, at},
		Latency: [][]float64{{0, 1}, {1, 0}}, Variability: []float64{0.5, 0},
	}
	solve := func() solver.ServiceSolution {
		out, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Services[0]
	}
	varying := solve()
	s.Variability = nil
	steady := solve()
	s.Variability = []float64{0.5, 0}
	if away := varying.Flows[0][1]; steady.Flows[0][1] > 1 || away < 150 || away > 300 {
		t.Errorf("%v of 600 requests/s go to the other zone, %v without variability", away, steady.Flows[0][1])
	}
	if a, b := varying.Utilization[0], varying.Utilization[1]; math.Abs(a-b) > 0.05 {
		t.Errorf("utilization %v and %v", a, b)
	}
	if a, b := solver.Objective(s, varying.Flows), solver.Objective(s, steady.Flows); a > 0.95*b {
		t.Errorf("cost %v, and %v with the flows for steady demand", a, b)
	}
}

func TestBadVariability(t *testing.T) {
	good := solver.Service{
		Demand: []float64{1}, Localities: []solver.Locality{{Capacity: 10}}, Latency: [][]float64{{1}},
	}
	for _, variability := range [][]float64{{}, {0.1, 0.1}, {-0.1}, {1.1}, {math.NaN()}} {
		s := good
		s.Variability = variability
		if _, err := solver.Solve(solver.Problem{Services: []solver.Service{s}}); !errors.Is(err, solver.ErrInvalid) {
			t.Errorf("variability %v: error %v", variability, err)
		}
	}
	caller, called := good, good
	caller.Calls, called.Variability = []solver.Call{{Service: 1, PerRequest: 1}}, []float64{0.1}
	called.Latency = [][]float64{{1}, {1}}
	if _, err := solver.Solve(solver.Problem{Services: []solver.Service{caller, called}}); !errors.Is(err, solver.ErrInvalid) {
		t.Errorf("variability of a called service: error %v", err)
	}
	// Of an earlier solution that was of something else nothing is taken.
	s := good
	s.Variability, s.WarmPrices, s.Previous = []float64{0.3}, []float64{1}, [][]float64{{1}}
	for _, warm := range []*solver.VariabilityPrices{
		{}, {High: []float64{1}, Low: []float64{1}, Lean: [][]float64{{1, 2}}},
		{High: []float64{math.NaN()}, Low: []float64{1}, Lean: [][]float64{{1}}},
		{High: []float64{1}, Low: []float64{1}, Lean: [][]float64{{math.Inf(1)}}},
	} {
		s.WarmVariability = warm
		out, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
		if err != nil || out.Gap > 0.005 {
			t.Errorf("warm %+v: gap %v, error %v", warm, out.Gap, err)
		}
	}
}
