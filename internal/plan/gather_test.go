package plan_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestGather asserts that a group which has lost all its plans goes on from the shares that
// clients have, whatever their requests do by failover, and that nothing is decided before.
func TestGather(t *testing.T) {
	l := &loop{t: t, decider: plan.NewDecider(interval, nil, t0), top: threeZones(t), now: t0}
	l.turn(l.decider.Rebase)
	l.plan.MakeProvisional()
	l.turn(l.decider.Rebase)
	if s, _ := l.plan.Service("checkout"); !l.plan.Provisional || s.Hold == "" {
		t.Errorf("the plan after a provisional one is provisional: %t; it holds: %q", l.plan.Provisional, s.Hold)
	}
	shared, err := (&plan.Sharer{}).Share(l.plan, plan.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := plan.Open(shared, nil, t0); err != nil || !opened.Plan.Provisional {
		t.Errorf("another replica takes it for a whole plan (%v)", err)
	}

	landed := func(zone string, n uint64, priority uint16) load.LocalityReport {
		return load.LocalityReport{Locality: new(loc(zone)), Issued: n, Succeeded: n, HasIssued: true, Priority: priority}
	}
	window := load.StreamWindow{
		Stream: 1, Opened: t0, Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy},
		Reports: []load.Report{{Arrived: t0.Add(interval), Services: []load.ServiceReport{{
			Service: "checkout", Interval: interval,
			Localities: []load.LocalityReport{landed("us/b", 300, 0), landed("us/a", 100, 0), landed("eu/a", 5000, 1)},
		}}}},
	}
	silent := load.StreamWindow{Stream: 2, Opened: t0, Node: load.Node{ID: "m", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy}}
	gather := func(intervals int, windows ...load.StreamWindow) (plan.Saved, float64) {
		now := t0
		for range intervals {
			now = now.Add(interval)
		}
		return l.decider.Gather(&plan.Turn{Now: now, Interval: interval, Windows: windows, Topology: l.top, Health: health.NewTable(nil), Previous: l.plan})
	}
	if _, returned := gather(1, window, silent); returned != 0 {
		t.Errorf("%v of the clients have returned one interval after the first of them", returned)
	}
	window.Reports[0].Arrived = t0.Add(3 * interval)
	observed, returned := gather(3, window, silent)
	if returned != 0.5 {
		t.Errorf("%v of the clients have reported, want half", returned)
	}
	if len(observed.Services) != 1 || len(observed.Services[0].Sources) != 1 {
		t.Fatalf("clients do %+v", observed.Services)
	}
	next, err := plan.Restore(&observed, l.top, health.NewTable(nil), l.now, l.plan.Version+1)
	if err != nil {
		t.Fatal(err)
	}
	a := next.Assignment("checkout", loc("us/a"))
	if near, far, over := a.Share(loc("us/b")), a.Share(loc("us/a")), a.Share(loc("eu/a")); next.Provisional || over > 0 || near < 0.74 || near > 0.76 || far < 0.24 || far > 0.26 {
		t.Errorf("clients send 75%% to us/b and 25%% to us/a; the next plan sends %v, %v and to eu/a %v", near, far, over)
	}
}
