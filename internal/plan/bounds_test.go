package plan_test

import (
	"math"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Evidence against all localities removes one of three: whoever makes the
// rest look dead as well is more likely wrong than right.
func TestEvidenceTakesHalfAtTheMost(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 300, "us/b": 300, "eu/a": 300}
	before := ticks(t, top, 3, rates)
	now := before.Made.Add(5)
	p, err := plan.Next(plan.Input{
		Now: now, Trigger: assign.Tick, Topology: top, Previous: before, Version: before.Version + 1, Load: demand(now, "checkout", rates),
		Findings: []load.Findings{{Service: "checkout", Unreachable: []isobar.Locality{loc("eu/a"), loc("us/a"), loc("us/b")}}},
	})
	if err != nil || len(p.Violations) > 0 {
		t.Fatal(err, p.Violations)
	}
	s, _ := p.Service("checkout")
	gone := 0
	for i := range s.Sites {
		if s.Sites[i].Unreachable {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d of 3 localities are given up, want 1", gone)
	}
}

// A locality that loses half of its endpoints works on half as many requests at
// once, and each takes as long as before.
func TestServiceTimeOutlivesFailures(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 300, "us/b": 300, "eu/a": 300}
	before := ticks(t, top, 1, rates)
	now := before.Made.Add(5)
	p, err := plan.Next(plan.Input{
		Now: now, Trigger: assign.Tick, Topology: top, Previous: before, Version: before.Version + 1, Load: demand(now, "checkout", rates),
		Health: health.NewTable([]health.Override{{Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Status: isobar.Unhealthy}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	was, _ := before.Service("checkout")
	is, _ := p.Service("checkout")
	for l := range is.Sites {
		x, y := was.Problem.Localities[l], is.Problem.Localities[l]
		part := 1.0
		if is.Sites[l].Group.Locality == loc("us/a") {
			part = 0.5
		}
		if math.Abs(y.Capacity-part*x.Capacity) > 1e-9 || math.Abs(y.Servers-part*x.Servers) > 1e-9 {
			t.Errorf("%s: capacity %v and %v servers, want %v of %v and %v", is.Sites[l].Group.Locality, y.Capacity, y.Servers, part, x.Capacity, x.Servers)
		}
	}
}

// A locality that is drained for being sick gets nothing, though some of its
// endpoints are up, and is left at once.
func TestDrainedLocalitiesGetNothing(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 300, "us/b": 300, "eu/a": 300}
	before := ticks(t, top, 1, rates)
	drained := health.RestoreDrains([]health.SavedDrain{{Service: "checkout", Locality: loc("us/a"), Since: t0}}).Current()
	for _, trigger := range []assign.Trigger{assign.Rebase, assign.Tick} {
		in := plan.Input{
			Now: before.Made.Add(5), Trigger: trigger, Topology: top, Previous: before, Version: before.Version + 1,
			Health: health.NewTable(nil).WithDrained(drained),
		}
		if trigger == assign.Tick {
			in.Load = demand(in.Now, "checkout", rates)
		}
		p, err := plan.Next(in)
		if err != nil || len(p.Violations) > 0 {
			t.Fatal(err, p.Violations)
		}
		s, _ := p.Service("checkout")
		for i := range s.Sites {
			if is := s.Sites[i].Group.Locality == loc("us/a"); s.Sites[i].Drained != is || (s.Sites[i].Capacity == 0) != is {
				t.Errorf("trigger %d, %s: drained %v with a capacity of %v", trigger, s.Sites[i].Group.Locality, s.Sites[i].Drained, s.Sites[i].Capacity)
			}
		}
		for _, from := range []string{"us/a", "us/b", "eu/a"} {
			if x := share(t, p, from, "us/a"); x > 0 {
				t.Errorf("trigger %d: %s sends %v to a drained locality", trigger, from, x)
			}
		}
	}
}
