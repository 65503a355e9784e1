//go:build !race

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

var updateScenarios = flag.Bool("update-scenarios", false, "write the table of docs/reference/scenarios.md anew")

// expectation is what must be seen in one scenario of the library.
type expectation struct {
	// ofOptimum is how far above the clairvoyant's mean latency Isobar's may be.
	ofOptimum float64
	// settled says that no locality may be above its ceiling.
	settled bool
}

const (
	steady = 1.05
	moving = 1.15
)

var expectations = map[string]expectation{
	"hot-zone":       {ofOptimum: steady, settled: true},
	"two-regions":    {ofOptimum: steady, settled: true},
	"silent-clients": {ofOptimum: steady, settled: true},
	"capacity-drift": {ofOptimum: moving, settled: true},
	"day":            {ofOptimum: moving},
	"flash-crowd":    {ofOptimum: moving},
	"square-wave":    {ofOptimum: moving},
	"zone-loss":      {ofOptimum: moving, settled: true},
	"undeclared":     {ofOptimum: moving, settled: true},
	"kv-cache":       {ofOptimum: moving, settled: true},
	"lying-reporter": {ofOptimum: steady, settled: true},
	"reports-lost":   {ofOptimum: moving, settled: true},
	"shedding":       {ofOptimum: moving},
}

// TestScenarioLibrary runs the whole library: the table in the documentation is
// what comes out, and Isobar does what it is said to do.
func TestScenarioLibrary(t *testing.T) {
	const dir = "../../examples/scenarios"
	files, err := scenarioFiles([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	scenarios, err := readScenarios(files, 0, nil, &stderr)
	if err != nil || stderr.Len() > 0 {
		t.Fatal(err, stderr.String())
	}
	all, err := runScenarios(t.Context(), files, scenarios, sim.Policies(), &stderr)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(expectations) {
		t.Errorf("%d scenarios and %d expectations", len(all), len(expectations))
	}
	for i := range all {
		t.Run(all[i].Name, func(t *testing.T) { judge(t, &all[i]) })
	}
	sameTable(t, "../../docs/reference/scenarios.md", simulationTables(all, 0))
}

// TestSilentClientsWithOtherSeeds runs the scenario whose result depends on chance most.
func TestSilentClientsWithOtherSeeds(t *testing.T) {
	files := []string{"../../examples/scenarios/silent-clients.yaml"}
	for seed := uint64(1); seed <= 5; seed++ {
		var stderr bytes.Buffer
		scenarios, err := readScenarios(files, seed, nil, &stderr)
		if err != nil {
			t.Fatal(err)
		}
		all, err := runScenarios(t.Context(), files, scenarios, sim.Policies(), &stderr)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { judge(t, &all[0]) })
	}
}

func judge(t *testing.T, s *simulation) {
	t.Helper()
	want, ok := expectations[s.Name]
	if !ok {
		t.Fatal("nothing is expected of this scenario")
	}
	r := map[string]*sim.Result{}
	for _, x := range s.Results {
		r[x.Policy] = x
	}
	is, best := r[sim.NameIsobar], r[sim.NameClairvoyant]
	if is.MeanMS > want.ofOptimum*best.MeanMS {
		t.Errorf("mean %.2f ms, the optimum %.2f", is.MeanMS, best.MeanMS)
	}
	if want.settled && is.Peak > isobar.DefaultCeiling {
		t.Errorf("a locality at %.1f%%", 100*is.Peak)
	}
	if x := r[sim.NameWaterfall]; s.Name == "two-regions" && x.MeanMS < 2*is.MeanMS {
		t.Errorf("mean %.2f ms, waterfall by region %.2f", is.MeanMS, x.MeanMS)
	}
	if s.Name == "shedding" {
		if plus, some, most := shedOf(is.Classes, isobar.ClassCriticalPlus), shedOf(is.Classes, isobar.ClassCritical), shedOf(is.Classes, isobar.ClassSheddable); plus > 0 || some > most/5 || most < 0.3 {
			t.Errorf("of the classes %v, %v and %v are dropped", plus, some, most)
		}
	}
	for _, x := range s.Results {
		// Within 1% of the latency, or a point of utilization, nobody is better on
		// both; docs/reference/scenarios.md says where somebody is by less.
		if x != best && x.MeanMS < 0.99*is.MeanMS && x.Fullest < is.Fullest-0.01 {
			t.Errorf("%s: mean %.2f ms (isobar %.2f), fullest %.1f%% (isobar %.1f%%)",
				x.Policy, x.MeanMS, is.MeanMS, 100*x.Fullest, 100*is.Fullest)
		}
	}
}

const (
	tableBegin = "<!-- written by make scenarios -->\n```text\n"
	tableEnd   = "```\n<!-- end -->\n"
)

// sameTable compares the table between the marks of a document, or writes it.
// Other processors round differently in the last place, which may show.
func sameTable(t *testing.T, file, table string) {
	t.Helper()
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), tableBegin)
	old, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatalf("%s: the marks %q and %q are missing", file, tableBegin, tableEnd)
	}
	if *updateScenarios {
		if err := os.WriteFile(file, []byte(before+tableBegin+table+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if runtime.GOARCH == "amd64" && old != table {
		t.Errorf("%s is not what comes out; run make scenarios\n%s", file, table)
	}
}

// TestLibraryHasNoCycles: demand that moves, failures, liars and capacities that
// are learned are not taken for shares that oscillate by themselves.
func TestLibraryHasNoCycles(t *testing.T) {
	files, err := scenarioFiles([]string{"../../examples/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	scenarios, err := readScenarios(files, 0, nil, &stderr)
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	for i, sc := range scenarios {
		_, err := sim.Run(t.Context(), simScenario(sc), sim.Isobar(), func(f sim.Frame) error {
			for _, s := range f.Plan.Services {
				if s.Damping != nil && s.Damping.Found > 0 {
					return fmt.Errorf("%s at %v: %s", s.Spec.Name, f.At, s.Damping)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", files[i], err)
		}
	}
}
