//go:build !race

package solver_test

import (
	"flag"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/solver"
)

var lpProblems = flag.Int("lp.problems", 25, "random problems of each kind to compare with a linear program")

// TestCallsAgainstLP has GLPK solve call graphs with every cost curve replaced by
// tangents: a lower bound that owes nothing to our prices. The answer must be
// within 0.5% and 0.1 ms of it, and take no more than 200 ms.
func TestCallsAgainstLP(t *testing.T) {
	glpsol, err := exec.LookPath("glpsol")
	if err != nil {
		t.Fatal("glpsol is needed for this test: install the Debian package glpk-utils")
	}
	var gaps, excesses, times []float64
	for i := range *lpProblems {
		p := callsProblem(uint64(i))
		sol, took := solveTimed(t, p)
		if err := solver.CheckAll(p, sol); err != nil {
			t.Errorf("problem %d: %v", i, err)
		}
		rate := rootDemand(p, sol)
		bound := callsBound(t, glpsol, p, sol, rate)
		gap, excess := (sol.Objective-bound)/sol.Objective, (sol.Objective-bound)/rate
		own := (sol.Objective - sol.LowerBound) / rate
		if gap > 0.005 || excess > 0.1 || took > 200*time.Millisecond {
			t.Errorf("problem %d: %d services: gap %.3g, excess %.3g ms to the linear program, %v", i, len(p.Services), gap, excess, took)
		}
		// The certificate is a bound too: no cheaper flows may exist.
		if sol.LowerBound < bound-0.005*sol.Objective || own > excess+0.1 {
			t.Errorf("problem %d: our bound is %v, that of the linear program %v", i, sol.LowerBound, bound)
		}
		gaps, excesses, times = append(gaps, gap), append(excesses, excess), append(times, took.Seconds()*1000)
	}
	for _, m := range []struct {
		name   string
		values []float64
	}{{"gap", gaps}, {"excess ms", excesses}, {"time ms", times}} {
		slices.Sort(m.values)
		t.Logf("%s: median %.3g, p99 %.3g, worst %.3g", m.name, m.values[len(m.values)/2],
			m.values[len(m.values)*99/100], m.values[len(m.values)-1])
	}
}

// solveTimed takes the best of three times, so that a busy machine is no reason
// to fail.
func solveTimed(t *testing.T, p solver.Problem) (sol solver.Solution, took time.Duration) {
	t.Helper()
	took = time.Hour
	for range 3 {
		start := time.Now()
		var err error
		if sol, err = solver.Solve(p); err != nil {
			t.Fatal(err)
		}
		took = min(took, time.Since(start))
	}
	return sol, took
}

// callsBound is the optimum of the linear program, with ceilings no wider than it
// takes for GLPK to find one: beyond what it tolerates, it proves less.
func callsBound(t *testing.T, glpsol string, p solver.Problem, sol solver.Solution, rate float64) float64 {
	t.Helper()
	for _, slack := range []float64{1e-9, 1e-8, 1e-7, 1e-6} {
		if optimum, _, ok := tryLP(t, glpsol, writeCallsLP(p, sol, rate, slack)); ok {
			return optimum * rate
		}
	}
	t.Fatal("GLPK found no optimum")
	return 0
}

// rootDemand is what is served of the demand that no call makes.
func rootDemand(p solver.Problem, sol solver.Solution) float64 {
	total := 0.0
	for i, s := range p.Services {
		for j, d := range s.Demand {
			total += d - sol.Services[i].Shed[j] - sol.Services[i].Unreachable[j]
		}
	}
	return total
}

// writeCallsLP states the problem in the CPLEX LP format: x_i_s_l are flows and
// y_i_l loads in shares of the demand from outside, q_i_l costs.
func writeCallsLP(p solver.Problem, sol solver.Solution, unit, slack float64) string {
	var objective, rows, bounds strings.Builder
	for i := range p.Services {
		s, answer := &p.Services[i], &sol.Services[i]
		for l, loc := range s.Localities {
			fmt.Fprintf(&objective, " + q_%d_%d\n", i, l)
			fmt.Fprintf(&rows, " y_%d_%d", i, l)
			for r := range s.Latency {
				fmt.Fprintf(&rows, " - x_%d_%d_%d\n", i, r, l)
			}
			fmt.Fprint(&rows, " = 0\n")
			raised := loc
			if raised.Ceiling == 0 {
				raised.Ceiling = 0.8
			}
			raised.Ceiling *= answer.Scale[l]
			limit := headroom(raised)
			fmt.Fprintf(&bounds, " 0 <= y_%d_%d <= %.17g\n q_%d_%d >= 0\n", i, l, limit*(1+slack)/unit, i, l)
			last := -1.0
			for _, y := range tangentPoints(answer.Load[l], limit) {
				if value, slope := tangent(loc, y); slope > last*(1+1e-6) {
					fmt.Fprintf(&rows, " q_%d_%d - %.17g y_%d_%d >= %.17g\n", i, l, slope, i, l, (value-slope*y)/unit)
					last = slope
				}
			}
		}
		for r := range s.Latency {
			for l := range s.Localities {
				fmt.Fprintf(&objective, " + %.17g x_%d_%d_%d\n", s.Latency[r][l]+s.Price[r][l], i, r, l)
				fmt.Fprintf(&rows, " + x_%d_%d_%d\n", i, r, l)
				if s.Allowed != nil && !s.Allowed[r][l] {
					fmt.Fprintf(&bounds, " x_%d_%d_%d = 0\n", i, r, l)
				}
			}
			if r < len(s.Demand) {
				fmt.Fprintf(&rows, " = %.17g\n", (s.Demand[r]-answer.Shed[r]-answer.Unreachable[r])/unit)
				continue
			}
			j, l, rate := callerOf(p, sol, i, r)
			fmt.Fprintf(&rows, " - %.17g y_%d_%d = 0\n", rate, j, l)
		}
	}
	return "Minimize\n obj:\n" + objective.String() + "Subject To\n" + rows.String() + "Bounds\n" + bounds.String() + "End\n"
}

// callerOf finds whose locality a source of service i is, and how many requests
// one there makes that are served.
func callerOf(p solver.Problem, sol solver.Solution, i, source int) (service, locality int, rate float64) {
	at := len(p.Services[i].Demand)
	for j := range p.Services {
		for k, c := range p.Services[j].Calls {
			if c.Service != i {
				continue
			}
			if n := len(p.Services[j].Localities); source < at+n {
				return j, source - at, c.PerRequest * sol.Services[j].CallsServed[k]
			}
			at += len(p.Services[j].Localities)
		}
	}
	panic("no such source")
}

// tangentPoints are dense around where the answer is and sparse elsewhere.
func tangentPoints(load, limit float64) []float64 {
	points := []float64{0, load, limit}
	for k := range 12 {
		points = append(points, limit*float64(k)/12)
	}
	for _, d := range []float64{0.001, 0.004, 0.016, 0.05} {
		points = append(points, load*(1-d), math.Min(limit, load*(1+d)))
	}
	slices.Sort(points)
	return points
}
