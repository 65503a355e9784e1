//go:build !race

package solver_test

import (
	"math"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// observedService is a service as plans see it that use estimates from requests: each
// locality has a service time, a capacity and a number of queues of its own, and a price
// for what is slow or fails there, up to all requests at the cost of an error.
func observedService(rng *rand.Rand) solver.Service {
	s := randomService(rng, 1+rng.IntN(8), 2+rng.IntN(7), 0.3+0.7*rng.Float64())
	usual := math.Exp2(8 * rng.Float64()) // ms
	errorCost := []float64{50, 1000, 30_000}[rng.IntN(3)]
	for l := range s.Localities {
		loc := &s.Localities[l]
		serviceMS := usual * math.Exp2(rng.NormFloat64())
		loc.Capacity *= math.Exp2(0.6 * rng.NormFloat64())
		loc.Servers = min(1e9, loc.Capacity*serviceMS/1000)
		loc.Queues = float64(1 + rng.IntN(20))
		loc.Unmanaged = min(loc.Unmanaged, 0.5*loc.Capacity)
		price := max(0, 2*(serviceMS-1.25*usual))
		if rng.IntN(3) == 0 {
			price += errorCost * math.Pow(rng.Float64(), 3)
		}
		for i := range s.Price {
			s.Price[i][l] += price
		}
	}
	return s
}

// TestObservedAgainstLP has GLPK solve -lp.problems services whose capacities, service times and
// failures requests tell. GLPK's tangents are refined at its own answers until these cost
// what it says, so that its optimum is that of the problem: our answer must be as cheap but
// for ties, and our bound must not be above what GLPK's answer really costs.
func TestObservedAgainstLP(t *testing.T) {
	t.Parallel()
	glpsol, err := exec.LookPath("glpsol")
	if err != nil {
		t.Fatal("glpsol is needed for this test: install the Debian package glpk-utils")
	}
	const rounds, exact = 12, 1e-5
	problems := *lpProblems
	widest, above, sharpest, inexact := 0.0, 0.0, math.Inf(1), 0
	for i := range uint64(problems) {
		rng := rand.New(rand.NewPCG(2104, i))
		s := observedService(rng)
		if i%3 == 0 {
			isolate(rng, &s, 0.4)
		}
		sol := solveOne(t, s)
		unit := sol.Objective / 1000
		slack := 0.0101 * sum(s.Demand)
		for l, p := range sol.Prices {
			slack += 2 * lpSlack * math.Abs(p) * (sol.Load[l] + headroom(s.Localities[l]))
		}
		least, cost := 0.0, math.Inf(1) // no answer costs less, and one costs so much
		var cuts [][]float64
		for range rounds {
			optimum, flows := solveLP(t, glpsol, writeLP(s, sol, unit, cuts...), len(s.Demand), len(s.Localities))
			loads := make([]float64, len(s.Localities))
			for _, row := range flows {
				for l := range row {
					row[l] *= sum(s.Demand)
					loads[l] += row[l]
				}
			}
			least, cost = max(least, unit*optimum), min(cost, costOf(s, flows, loads))
			if cost <= least*(1+exact)+slack {
				break
			}
			cuts = append(cuts, loads)
		}
		if cost > least*(1+exact)+slack {
			inexact++
		}
		if sol.LowerBound > cost*(1+exact)+slack {
			t.Errorf("problem %d: the bound is %v, and GLPK's answer costs %v", i, sol.LowerBound, cost)
		}
		if sol.Objective > cost*(1+exact)+slack {
			t.Errorf("problem %d: objective %v, GLPK finds one of %v", i, sol.Objective, cost)
		}
		widest, above, sharpest = max(widest, sol.Gap), max(above, sol.Objective/cost-1), min(sharpest, sol.LowerBound/cost)
	}
	if inexact > problems/100 {
		t.Errorf("tangents did not reach the curves in %d problems", inexact)
	}
	t.Logf("%d problems: largest gap %.4f%%; objective at most %.4f%% above what GLPK's answer costs, bound at least %.4f%% of it; %d inexact",
		problems, 100*widest, 100*above, 100*sharpest, inexact)
}

var flowLine = regexp.MustCompile(`(?m)^\s*\d+ x_(\d+)_(\d+)\s+(?:B|NL|NU|NF|NS)\s+(\S+)`)

// solveLP returns the optimum and its flows, in shares of the demand.
func solveLP(t *testing.T, glpsol, lp string, sources, localities int) (optimum float64, flows [][]float64) {
	t.Helper()
	optimum, answer, ok := tryLP(t, glpsol, lp)
	if !ok {
		t.Fatal("GLPK found no optimum")
	}
	flows = make([][]float64, sources)
	for i := range flows {
		flows[i] = make([]float64, localities)
	}
	for _, m := range flowLine.FindAllStringSubmatch(answer, -1) {
		i, _ := strconv.Atoi(m[1])
		l, _ := strconv.Atoi(m[2])
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		flows[i][l] = v
	}
	return optimum, flows
}

// costOf is what flows cost by the definition.
func costOf(s solver.Service, flows [][]float64, loads []float64) float64 {
	all := 0.0
	for l, y := range loads {
		value, _ := tangent(s.Localities[l], y)
		all += value
		for i := range flows {
			all += flows[i][l] * (s.Latency[i][l] + s.Price[i][l])
		}
	}
	return all
}
