//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

const interval = 5 * time.Second

func loc(s string) isobar.Locality { return isobar.MustLocality(s) }

// clients makes five reporting streams for a source that share its demand.
func clients(source string, demand sim.Shape) []sim.Source {
	return []sim.Source{{Service: "checkout", From: loc(source), Demand: demand}}
}

func constant(rate float64) sim.Shape { return sim.Constant(rate) }

func step(before, after float64, when time.Duration) sim.Shape {
	return func(at time.Duration) float64 {
		if at < when {
			return before
		}
		return after
	}
}

// stepScenario takes the load of us/a from 60% of its ceiling to the given
// rate after 100 s. Part of the load may come from us/c.
func stepScenario(t *testing.T, after, other float64, reportDelay, pushDelay time.Duration) *sim.Scenario {
	t.Helper()
	sc := &sim.Scenario{
		Topology: testhelp.FourZones(t), Tick: interval, Interval: interval,
		ReportDelay: sim.Delay{Base: reportDelay}, PushDelay: sim.Delay{Base: pushDelay}, Length: 300 * time.Second, Timeout: time.Hour, // nothing fails: only pacing counts
	}
	sc.Topology.Services[0].CapacityTrust = isobar.TrustDeclared // and capacities are known
	if other > 0 {
		sc.Sources = append(sc.Sources, clients("us/c", constant(other))...)
	}
	sc.Sources = append(sc.Sources, clients("us/a", step(480-other, after, stepAt))...)
	sc.Sources = append(sc.Sources, clients("us/b", constant(300))...)
	sc.Sources = append(sc.Sources, clients("eu/a", constant(300))...)
	sc.Sources = append(sc.Sources, clients("eu/b", constant(300))...)
	return sc
}

const stepAt = 100 * time.Second

// steps are what the load of us/a becomes.
var steps = []struct {
	name  string
	after float64 // requests/s of us/a
	other float64 // requests/s of us/c, which has no endpoints and is nearest to us/a
}{
	{"120% of the ceiling", 960, 0},
	{"250% of the ceiling", 2000, 0},
	{"120%, displacing 60 points of another source", 693, 267},
}

// TestStepSettles is the figure that pacing is tuned for: within 10 ticks of
// the first complete window that shows the step, plus the push delay, shares
// stand within a point of their target, without overshoot.
func TestStepSettles(t *testing.T) {
	for _, step := range steps {
		for reports := range 4 {
			for pushes := range 4 {
				t.Run(fmt.Sprintf("%s, reports %d, pushes %d", step.name, reports, pushes), func(t *testing.T) {
					sc := stepScenario(t, step.after, step.other, time.Duration(reports)*interval, time.Duration(pushes)*interval)
					judge(t, sc, run(t, sc))
				})
			}
		}
	}
}

// run runs a scenario and fails on any broken invariant.
func run(t *testing.T, sc *sim.Scenario) []sim.Frame {
	t.Helper()
	var frames []sim.Frame
	_, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
		for _, v := range f.Plan.Violations {
			t.Errorf("at %v: %+v", f.At, v)
		}
		frames = append(frames, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

func judge(t *testing.T, sc *sim.Scenario, frames []sim.Frame) {
	t.Helper()
	settled, limit, worst := settling(sc, frames)
	if testing.Verbose() {
		t.Logf("settled %.1f ticks before the limit, overshoot %.1f points", float64(limit-settled)/float64(sc.Tick), worst)
	}
	if settled < 0 || settled > limit {
		t.Errorf("settled at %v, want by %v", settled, limit)
	}
	if worst > 5 {
		t.Errorf("overshoot of %.1f points", worst)
	}
}

// settling tells when a step has settled (-1 = never), until when it has to, and the
// largest overshoot, in points.
func settling(sc *sim.Scenario, frames []sim.Frame) (settled, limit time.Duration, worst float64) {
	// The first window that lies wholly after the step ends at most two
	// intervals after it.
	shown := stepAt + 2*interval + sc.ReportDelay.Base
	settled = -1
	good := 0
	final := frames[len(frames)-1]
	for _, f := range frames {
		worst = max(worst, overshoot(f, frames, final))
		if f.At < stepAt {
			continue
		}
		if distance(f, final) <= 1 && offTarget(f) <= 1 {
			good++
			if good == 3 && settled < 0 {
				settled = f.At - 2*sc.Tick
			}
		} else if settled < 0 {
			good = 0
		}
	}
	return settled, shown + 10*sc.Tick + sc.PushDelay.Base, worst
}

// offTarget is the largest difference between published and wanted shares,
// in points.
func offTarget(f sim.Frame) float64 {
	s, _ := f.Plan.Service("checkout")
	worst := 0.0
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		for l := range r.Target {
			worst = max(worst, 100*math.Abs(r.Target[l]-r.Shares[l]))
		}
	}
	return worst
}

// distance is the largest difference of a published share between two frames,
// in points.
func distance(a, b sim.Frame) float64 {
	worst := 0.0
	each(a, b, func(x, y float64) { worst = max(worst, 100*math.Abs(x-y)) })
	return worst
}

// overshoot is how far a share lies beyond both its final value and what the
// solver wants at the moment, seen from where it was before the step, in
// points.
func overshoot(f sim.Frame, frames []sim.Frame, final sim.Frame) float64 {
	var before sim.Frame
	for _, b := range frames {
		if b.At < stepAt {
			before = b
		}
	}
	if f.At <= stepAt {
		return 0
	}
	worst := 0.0
	bs, fs, now, want := shares(before), shares(final), shares(f), targets(f)
	for k := range fs {
		if bs[k] <= fs[k] {
			worst = max(worst, 100*(now[k]-max(fs[k], want[k])))
		} else {
			worst = max(worst, 100*(min(fs[k], want[k])-now[k]))
		}
	}
	return worst
}

func targets(f sim.Frame) []float64 {
	s, _ := f.Plan.Service("checkout")
	var out []float64
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		if r.Target == nil {
			out = append(out, r.Shares...)
			continue
		}
		out = append(out, r.Target...)
	}
	return out
}

func shares(f sim.Frame) []float64 {
	s, _ := f.Plan.Service("checkout")
	var out []float64
	for i := range s.Result.Sources {
		out = append(out, s.Result.Sources[i].Shares...)
	}
	return out
}

func each(a, b sim.Frame, do func(x, y float64)) {
	x, y := shares(a), shares(b)
	if len(x) != len(y) {
		do(0, 1)
		return
	}
	for i := range x {
		do(x[i], y[i])
	}
}
