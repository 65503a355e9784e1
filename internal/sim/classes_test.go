//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// overloaded is a fleet with more demand than it may carry between two moments,
// two thirds of it from the web. Batch jobs run in one of the zones only.
func overloaded(t *testing.T) *sim.Scenario {
	t.Helper()
	sc := &sim.Scenario{
		Topology: testhelp.FourZones(t), Tick: interval, Interval: interval, Length: 12 * time.Minute,
		PushDelay: sim.Delay{Base: time.Second}, ReportDelay: sim.Delay{Base: time.Second},
	}
	s := &sc.Topology.Services[0]
	s.MaxShed = 0.5
	s.Criticality = &isobar.Criticality{
		Clients: []isobar.ClientClass{
			{Client: "payments", Class: isobar.ClassCriticalPlus},
			{Client: "batch-*", Class: isobar.ClassSheddable},
		},
		MaxShed: isobar.ClassFractions{0, 0.5, 1, 1},
	}
	crowd := sim.Flash(overloadFrom, overloadTo-overloadFrom, 2)
	for _, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		sc.Sources = append(sc.Sources,
			sim.Source{Service: s.Name, From: loc(z), Client: "web", Demand: sim.Times(constant(400), crowd)},
			sim.Source{Service: s.Name, From: loc(z), Client: "payments", Demand: constant(100)})
	}
	sc.Sources = append(sc.Sources, sim.Source{Service: s.Name, From: loc("us/b"), Client: "batch-nightly", Demand: constant(700)})
	sc.Topology.Normalize()
	return sc
}

const (
	overloadFrom = 4 * time.Minute
	overloadTo   = 8 * time.Minute
)

// While there is too much demand, the class that matters least is dropped first,
// and then a part of the next one; what is left fits under the ceilings of all
// zones, though only one of them gets less. After it, drops decay to nothing.
func TestShedByClass(t *testing.T) {
	shed := func(f sim.Frame, class isobar.Class) float64 {
		for _, c := range f.Sample.Classes {
			if c.Class == class {
				return c.Shed
			}
		}
		t.Fatalf("at %v: nothing is told of class %s", f.At, class)
		return 0
	}
	for _, f := range run(t, overloaded(t)) {
		plus, critical, sheddable := shed(f, isobar.ClassCriticalPlus), shed(f, isobar.ClassCritical), shed(f, isobar.ClassSheddable)
		const settled, decayed = time.Minute, time.Minute
		switch {
		case plus > 0 || critical > 0 && f.At > overloadFrom && f.At < overloadTo && sheddable < 0.8:
			t.Fatalf("at %v: %.3f, %.3f and %.3f are dropped", f.At, plus, critical, sheddable)
		case f.At > overloadFrom+settled && f.At <= overloadTo:
			// 4,300 requests/s want to be served, 3,200 may be: batch gives all of
			// its 700, the web 400 of its 3,200.
			if sheddable < 0.99 || critical < 0.115 || critical > 0.145 {
				t.Errorf("at %v: %.3f of critical requests and %.3f of sheddable ones are dropped", f.At, critical, sheddable)
			}
			if f.Sample.Fullest > 0.81 {
				t.Errorf("at %v: a zone is at %.3f", f.At, f.Sample.Fullest)
			}
		case f.At <= overloadFrom || f.At > overloadTo+decayed:
			if critical > 0 || sheddable > 0 {
				t.Errorf("at %v: %.3f of critical requests and %.3f of sheddable ones are dropped without need", f.At, critical, sheddable)
			}
		}
	}
}

// The figures of a whole run add up, and with true inputs exactly as much is
// dropped as has to be.
func TestShedByClassKnownBeforehand(t *testing.T) {
	sc := overloaded(t)
	sc.Warmup = overloadFrom
	sc.Length = overloadTo
	var clairvoyant sim.Policy
	for _, p := range sim.Policies() {
		if p.Name == sim.NameClairvoyant {
			clairvoyant = p
		}
	}
	r, err := sim.Run(t.Context(), sc, clairvoyant, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Classes) != 3 || r.Classes[0].Shed != 0 || r.Classes[2].Shed < 0.999 || r.Classes[1].Shed < 0.124 || r.Classes[1].Shed > 0.126 {
		t.Errorf("classes %+v", r.Classes)
	}
	if want := 1100.0 / 4300; r.Shed < want-0.001 || r.Shed > want+0.001 || r.Peak > 0.801 {
		t.Errorf("%.4f is dropped, want %.4f; the fullest zone is at %.4f", r.Shed, want, r.Peak)
	}
}
