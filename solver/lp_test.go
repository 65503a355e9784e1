//go:build !race

package solver_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// TestAgainstLP has GLPK solve the same problems with every cost curve replaced
// by tangents, on a grid and at the loads of our answer. Its optimum is a lower
// bound that owes nothing to our prices: our answer must be as cheap.
func TestAgainstLP(t *testing.T) {
	glpsol, err := exec.LookPath("glpsol")
	if err != nil {
		t.Fatal("glpsol is needed for this test: install the Debian package glpk-utils")
	}
	for i := range uint64(40) {
		rng := rand.New(rand.NewPCG(5, i))
		s := randomService(rng, 1+rng.IntN(8), 1+rng.IntN(8), 0.3+rng.Float64())
		if i%3 == 0 {
			isolate(rng, &s, 0.4)
		}
		sol := solveOne(t, s)
		unit := sol.Objective / 1000
		want := unit * runLP(t, glpsol, writeLP(s, sol, unit))
		// What the LP's wider ceilings are worth, and what ties may cost.
		slack := 0.0101 * sum(s.Demand)
		for l, p := range sol.Prices {
			slack += 2 * lpSlack * math.Abs(p) * (sol.Load[l] + headroom(s.Localities[l]))
		}
		if sol.Objective > want*(1+1e-6)+slack {
			t.Errorf("problem %d: objective %v, GLPK finds %v", i, sol.Objective, want)
		}
		if sol.LowerBound < want*(1-1e-6)-slack {
			t.Errorf("problem %d: bound %v, GLPK finds %v", i, sol.LowerBound, want)
		}
	}
}

// lpSlack widens the ceilings by more than the tolerance of GLPK.
const lpSlack = 1e-6

// writeLP states the problem in the CPLEX LP format: x_s_l are flows, y_l
// loads, in shares of the demand, q_l costs of localities in the given unit. There are
// tangents at the loads of the solution, too, and at others.
func writeLP(s solver.Service, sol solver.ServiceSolution, unit float64, others ...[]float64) string {
	total := sum(s.Demand)
	var objective, rows, bounds strings.Builder
	for l, loc := range s.Localities {
		fmt.Fprintf(&objective, " + q_%d\n", l)
		fmt.Fprintf(&rows, " y_%d", l)
		for i := range s.Demand {
			fmt.Fprintf(&rows, " - x_%d_%d", i, l)
		}
		fmt.Fprint(&rows, " = 0\n")
		raised := loc
		if raised.Ceiling == 0 {
			raised.Ceiling = 0.8
		}
		raised.Ceiling *= sol.Scale[l]
		limit := headroom(raised)
		fmt.Fprintf(&bounds, " 0 <= y_%d <= %.17g\n q_%d >= 0\n", l, limit*(1+lpSlack)/total, l)
		points := []float64{sol.Load[l]}
		for _, loads := range others {
			points = append(points, loads[l])
		}
		for k := range 40 {
			points = append(points, limit*float64(k)/39)
		}
		last := -1.0
		slices.Sort(points)
		for _, y := range points {
			value, slope := tangent(loc, y)
			if slope > last*(1+1e-6) {
				fmt.Fprintf(&rows, " q_%d - %.17g y_%d >= %.17g\n", l, slope*total/unit, l, (value-slope*y)/unit)
				last = slope
			}
		}
	}
	for i, d := range s.Demand {
		for l := range s.Localities {
			fmt.Fprintf(&objective, " + %.17g x_%d_%d\n", (s.Latency[i][l]+s.Price[i][l])*total/unit, i, l)
			fmt.Fprintf(&rows, " + x_%d_%d", i, l)
			if s.Allowed != nil && !s.Allowed[i][l] {
				fmt.Fprintf(&bounds, " x_%d_%d = 0\n", i, l)
			}
		}
		fmt.Fprintf(&rows, " = %.17g\n", d/total)
	}
	return "Minimize\n obj:\n" + objective.String() + "Subject To\n" + rows.String() + "Bounds\n" + bounds.String() + "End\n"
}

// tangent is the cost of a locality at load y and its slope there, written out
// again from the definition, with the slope by differences.
func tangent(l solver.Locality, y float64) (value, slope float64) {
	r := max(1, l.Queues)
	cost := func(y float64) float64 {
		if l.Servers == 0 || l.Capacity == 0 {
			return 0
		}
		queue := func(u float64) float64 {
			return 1000 * r * math.Pow(u, math.Sqrt(2*(l.Servers/r+1))) / (1 - u)
		}
		const knee, h = 0.98, 1e-6
		u := (y + l.Unmanaged) / l.Capacity
		q := queue(min(u, knee))
		if u > knee {
			q += (u - knee) * (queue(knee+h) - queue(knee-h)) / (2 * h)
		}
		return y*1000*l.Servers/l.Capacity + q
	}
	h := 1e-6 * l.Capacity
	low := max(0, y-h)
	slope = (cost(y+h) - cost(low)) / (y + h - low)
	// Differences put the line a trace above the curve: lower it a little.
	return cost(y) - 1e-9*math.Abs(cost(y)), slope
}

var objectiveLine = regexp.MustCompile(`Objective:\s+obj = (\S+)`)

func runLP(t *testing.T, glpsol, lp string) float64 {
	t.Helper()
	v, _, ok := tryLP(t, glpsol, lp)
	if !ok {
		t.Fatal("GLPK found no optimum")
	}
	return v
}

// tryLP gives up where GLPK does: where demand fills everything to the brim, any
// of its methods may stall.
func tryLP(t *testing.T, glpsol, lp string) (optimum float64, answer string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "problem.lp"), filepath.Join(dir, "answer.txt")
	if err := os.WriteFile(in, []byte(lp), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"--dual", "--primal"} {
		text, err := exec.CommandContext(t.Context(), glpsol, "--tmlim", "10", "--lp", in, "-o", out, method).CombinedOutput()
		if err != nil {
			t.Fatalf("glpsol: %v\n%s", err, text)
		}
		answer, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if m := objectiveLine.FindSubmatch(answer); m != nil && strings.Contains(string(answer), "OPTIMAL") {
			if optimum, err = strconv.ParseFloat(string(m[1]), 64); err != nil {
				t.Fatal(err)
			}
			return optimum, string(answer), true
		}
	}
	return 0, "", false
}
