package plan_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

const interval = 5 * time.Second

// loop turns a decider by hand.
type loop struct {
	t       *testing.T
	decider *plan.Decider
	top     *isobar.Topology
	plan    *plan.Plan
	now     time.Time
	streams load.StreamID // that are closed
	open    bool
	left    bool // the clients are gone altogether
}

func (l *loop) turn(step func(*plan.Turn) (*plan.Plan, error), windows ...load.StreamWindow) {
	l.t.Helper()
	turn := &plan.Turn{
		Now: l.now, Interval: interval, Windows: windows, Topology: l.top, Health: health.NewTable(nil), Previous: l.plan, Version: 1,
	}
	if !l.left {
		turn.Watched = []plan.Watched{{Service: "checkout", Source: loc("us/a"), Streams: 3, Acked: t0}}
	}
	if l.plan != nil {
		turn.Version = l.plan.Version + 1
	}
	p, err := step(turn)
	if err != nil {
		l.t.Fatal(err)
	}
	l.plan = p
}

// tick lets an interval pass, in which three clients in us/a send what they
// are told; what goes to us/a fails if it is dead. Without a rate they leave.
func (l *loop) tick(rate float64, dead bool) {
	l.t.Helper()
	opened := l.now
	l.now = l.now.Add(interval)
	if rate == 0 && !l.open {
		l.turn(l.decider.Tick)
		return
	}
	var windows []load.StreamWindow
	for i := range load.StreamID(3) {
		w := load.StreamWindow{Stream: l.streams + i + 1, Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy}, Opened: opened}
		sr := load.ServiceReport{Service: "checkout", Interval: interval}
		for _, z := range []string{"eu/a", "us/a", "us/b"} {
			a := l.plan.Assignment("checkout", loc("us/a"))
			if a == nil {
				continue
			}
			n := uint64(rate * interval.Seconds() * a.Share(loc(z)))
			lr := load.LocalityReport{Locality: new(loc(z)), Issued: n, HasIssued: true, Succeeded: n}
			if dead && z == "us/a" {
				lr.Succeeded, lr.Errors = 0, n
			}
			sr.Localities = append(sr.Localities, lr)
		}
		if rate > 0 {
			w.Reports = []load.Report{{Arrived: l.now, Services: []load.ServiceReport{sr}}}
		} else {
			w.Closed = l.now
		}
		windows = append(windows, w)
	}
	if l.open = rate > 0; !l.open {
		l.streams += 3
	}
	l.turn(l.decider.Tick, windows...)
}

// What was held against the zones of a service is not held against those of
// another one that is given its name later, even if nobody used the service
// when it was deleted.
func TestDeletedServiceLeavesNoEvidence(t *testing.T) {
	l := &loop{t: t, decider: plan.NewDecider(interval, nil, t0), top: threeZones(t), now: t0}
	l.turn(l.decider.Rebase)
	for range 5 {
		l.tick(10, false)
	}
	for range 4 {
		l.tick(10, true)
	}
	idle, _ := l.plan.Service("checkout")
	if len(idle.Findings.Unreachable) == 0 {
		t.Fatal("a dead zone is not found")
	}
	l.left = true
	for n := 0; idle.Load != nil; n++ {
		l.tick(0, false)
		if idle, _ = l.plan.Service("checkout"); n > 25 {
			t.Fatalf("clients that are gone are remembered: %+v", idle.Load)
		}
	}
	l.left = false
	full := l.top
	l.top = &isobar.Topology{Network: full.Network, Revision: 2}
	l.turn(l.decider.Rebase)
	l.tick(0, false)
	l.top = full
	l.turn(l.decider.Rebase)
	for i := range 2 {
		l.tick(10, false)
		if s, _ := l.plan.Service("checkout"); len(s.Findings.Barred)+len(s.Findings.Outages) > 0 {
			t.Fatalf("%d ticks after it was made anew: %+v", i+1, s.Findings)
		}
	}
}

// What clients do under shares that a change of health replaces before the next
// tick is what they were told: it is not held against those that follow.
func TestSharesThatHealthReplacedAreRemembered(t *testing.T) {
	f := newFleet(t, declared(t, isobar.ModeFull))
	f.demand = 180 // 540 requests/s, of which us/a may carry 320
	for i := range 20 {
		f.tick()
		told, reported := f.plan, f.now
		if got := told.Assignment("checkout", loc("us/a")).Share(loc("us/b")); got < 0.1 {
			t.Fatalf("tick %d: %.2f of the traffic to us/b, want some", i, got)
		}
		// Just before the next tick all of us/b fails, and is back at once.
		f.now = reported.Add(interval - 2*time.Millisecond)
		f.table = health.NewTable([]health.Override{
			{Key: health.Key{Service: "checkout", Address: "10.0.1.1:80"}, Status: isobar.Unhealthy},
			{Key: health.Key{Service: "checkout", Address: "10.0.1.2:80"}, Status: isobar.Unhealthy},
		})
		f.turn(f.decider.Rebase)
		if got := f.plan.Assignment("checkout", loc("us/a")).Share(loc("us/b")); got > 0 {
			t.Fatalf("tick %d: %.2f of the traffic to us/b, which is down", i, got)
		}
		f.table = health.Table{}
		f.turn(f.decider.Rebase)
		f.now = reported
		f.land = func(l isobar.Locality, _ float64) float64 { return told.Assignment("checkout", loc("us/a")).Share(l) }
		if found := f.service().Findings; len(found.Background)+len(found.Deviating)+len(found.Barred) > 0 {
			t.Fatalf("tick %d: %+v", i, found)
		}
	}
}

// A fleet that reports no load after a restart is not held for ever by the
// demand of an earlier process: where clients are there, degradation ends the
// hold in the end, and else the demand fades after two minutes.
func TestHoldEndsWithoutAnyReports(t *testing.T) {
	t.Run("clients are there", func(t *testing.T) { holdEnds(t, false, 10*time.Minute, "decaying") })
	t.Run("nobody is there", func(t *testing.T) { holdEnds(t, true, 2*time.Minute, "absent") })
}

func holdEnds(t *testing.T, left bool, want time.Duration, level plan.DegradationLevel) {
	t.Helper()
	saved := plan.Saved{Version: 5, Services: []plan.SavedService{{
		Name: "checkout", Sites: []isobar.Locality{loc("us/a"), loc("us/b")},
		Limits:  []plan.SavedSite{{Capacity: 1000, Scale: 1}, {Capacity: 1000, Scale: 1}},
		Sources: []plan.SavedSource{{Source: loc("us/a"), Demand: 50, Shares: []float64{0, 1}}},
	}}}
	l := &loop{t: t, decider: plan.NewDecider(interval, saved.Demand(), t0), top: threeZones(t), now: t0, left: left}
	p, err := plan.Restore(&saved, l.top, health.NewTable(nil), t0, 6)
	if err != nil {
		t.Fatal(err)
	}
	l.plan = p
	held := time.Duration(0)
	for l.now.Before(t0.Add(20 * time.Minute)) {
		l.now = l.now.Add(interval)
		l.turn(l.decider.Tick)
		if s, _ := l.plan.Service("checkout"); s.Hold != "" {
			held = l.now.Sub(t0)
			if got := l.plan.Assignment("checkout", loc("us/a")).Share(loc("us/b")); got < 0.99 {
				t.Fatalf("after %v: held, and the saved share of us/b is %.2f", held, got)
			}
		}
	}
	if held < want-2*interval || held > want {
		t.Errorf("held for %v, want %v", held, want)
	}
	s, _ := l.plan.Service("checkout")
	if got := s.Inputs[0].Level; got != level {
		t.Errorf("in the end %s, want %s", got, level)
	}
	if got := l.plan.Assignment("checkout", loc("us/a")).Share(loc("us/a")); got < 0.3 {
		t.Errorf("share of the nearest zone is %.2f in the end, want it planned anew", got)
	}
}
