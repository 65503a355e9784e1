package solver_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// The objective has queues of random arrivals and service times. Where queues are a
// fifth as long as that, or twice as long, its flows cost 1% more on average than those
// of an objective that knows how long they are; docs/decisions/solver.md has the figures.
func TestVariabilityOfQueuesMattersLittle(t *testing.T) {
	const problems = 100
	for _, x := range []struct{ longer, mean, worst float64 }{{0.2, 0.01, 0.12}, {0.6, 0.002, 0.02}, {2, 0.005, 0.05}} {
		worst, sum := 0.0, 0.0
		for seed := range uint64(problems) {
			s := fourPlaces(rand.New(rand.NewPCG(seed, 4)))
			known, fixed := withQueues(&s, x.longer)
			cost := func(flows [][]float64) float64 { return solver.Objective(known, flows) - fixed }
			excess := cost(solved(t, s))/cost(solved(t, known)) - 1
			worst, sum = max(worst, excess), sum+excess
		}
		t.Logf("queues of %.1f times the length: %.2f%% more latency on average, at most %.2f%%", x.longer, 100*sum/problems, 100*worst)
		if worst > x.worst || sum > x.mean*problems {
			t.Errorf("queues of %.1f times the length: want at most %.2f%% and %.2f%%", x.longer, 100*x.mean, 100*x.worst)
		}
	}
}

// fourPlaces is a service in three localities of one region and one of another, whose
// clients send 35% to 60% of each locality's capacity, and more from one of them.
func fourPlaces(r *rand.Rand) solver.Service {
	var s solver.Service
	service, workers, far := 0.01*math.Exp2(2.5*r.Float64()), float64(1+r.IntN(4)), 20+60*r.Float64()
	all := 0.0
	for range 4 {
		queues := float64(2 + r.IntN(4))
		c := queues * workers / service
		s.Localities = append(s.Localities, solver.Locality{Capacity: c, Servers: queues * workers, Queues: queues, Ceiling: 0.95})
		s.Demand = append(s.Demand, c*(0.35+0.25*r.Float64()))
		all += c
	}
	rest := 0.0
	for _, d := range s.Demand[1:] {
		rest += d
	}
	s.Demand[0] = max(s.Demand[0], min(s.Demand[0]*(1.5+r.Float64()), 0.75*all-rest))
	for i := range 4 {
		row := make([]float64, 4)
		for l := range row {
			switch {
			case i == l:
			case i == 3 || l == 3:
				row[l] = far
			default:
				row[l] = 1
			}
		}
		s.Latency = append(s.Latency, row)
	}
	return s
}

// withQueues is the problem whose queues are v times as long, divided by v, and what that
// adds to its cost whatever the flows are: prices can't be negative.
func withQueues(s *solver.Service, v float64) (out solver.Service, fixed float64) {
	out = *s
	out.Latency, out.Price = nil, nil
	longest, demand := 0.0, 0.0
	for _, l := range s.Localities {
		longest = max(longest, 1000*l.Servers/l.Capacity)
	}
	for i, row := range s.Latency {
		demand += s.Demand[i]
		latency, price := make([]float64, len(row)), make([]float64, len(row))
		for l, w := range row {
			latency[l] = w / v
			price[l] = longest + 1000*s.Localities[l].Servers/s.Localities[l].Capacity*(1/v-1)
		}
		out.Latency, out.Price = append(out.Latency, latency), append(out.Price, price)
	}
	return out, longest * demand
}

func solved(t *testing.T, s solver.Service) [][]float64 {
	t.Helper()
	out, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Services[0].Flows
}

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
// cost, and returns the least cost.
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
