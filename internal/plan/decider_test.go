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
		turn.Subscribed = []load.Subscription{{Service: "checkout", Source: loc("us/a"), Streams: 3, AckedAt: t0}}
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
	l.turn(l.decider.Reapply)
	for range 5 {
		l.tick(10, false)
	}
	for range 4 {
		l.tick(10, true)
	}
	idle, _ := l.plan.Service("checkout")
	if len(idle.Deviations.Unreachable) == 0 {
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
	l.turn(l.decider.Reapply)
	l.tick(0, false)
	l.top = full
	l.turn(l.decider.Reapply)
	for i := range 2 {
		l.tick(10, false)
		if s, _ := l.plan.Service("checkout"); len(s.Deviations.Barred)+len(s.Deviations.Outages) > 0 {
			t.Fatalf("%d ticks after it was made anew: %+v", i+1, s.Deviations)
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
		f.turn(f.decider.Reapply)
		if got := f.plan.Assignment("checkout", loc("us/a")).Share(loc("us/b")); got > 0 {
			t.Fatalf("tick %d: %.2f of the traffic to us/b, which is down", i, got)
		}
		f.table = health.Table{}
		f.turn(f.decider.Reapply)
		f.now = reported
		f.land = func(l isobar.Locality, _ float64) float64 { return told.Assignment("checkout", loc("us/a")).Share(l) }
		if found := f.service().Deviations; len(found.Unmanaged)+len(found.Deviating)+len(found.Barred) > 0 {
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

// other is a plan that goes its own way beside one that is measured.
type other struct {
	t    *testing.T
	top  *isobar.Topology
	plan *plan.Plan
}

// follow decides what was measured under the other topology; it begins with the
// first plan that it sees.
func (o *other) follow(p *plan.Plan) {
	o.t.Helper()
	if o.plan == nil {
		o.plan = p
		return
	}
	turn := plan.Turn{
		Now: p.Made, Interval: 5 * time.Second, Topology: o.top, Health: health.NewTable(nil),
		Previous: o.plan, Version: o.plan.Version + 1,
		Subscribed: []load.Subscription{{Service: "checkout", Source: loc("us/a"), Streams: 3}},
	}
	if o.top == nil {
		turn.Topology = p.Topology
	}
	next, err := turn.Replan(p)
	if err != nil {
		o.t.Fatal(err)
	}
	o.plan = next
}

func (o *other) service() *plan.Service {
	s, _ := o.plan.Service("checkout")
	return s
}

// TestReplanDampsAsItWasDamped: oscillations in the other plan are found and damped
// by the same rules, and let go after the same time.
func TestReplanDampsAsItWasDamped(t *testing.T) {
	o, damped, calm := &other{t: t}, 0, 0
	oscillating(t, 260, 1.5, func(p *plan.Plan) {
		o.follow(p)
		is, _ := p.Service("checkout")
		if a, b := is.Damping, o.service().Damping; a.Level != b.Level || a.Left != b.Left || a.Found != b.Found || a.String() != b.String() {
			t.Fatalf("plan %d: damped %+v, want %+v", p.Version, *b, *a)
		}
		if is.Damping.Level > 0 {
			damped++
		} else if is.Damping.Found > 0 {
			calm++
		}
	})
	if damped < 60 || calm < 10 {
		t.Errorf("%d ticks damped, %d calm after that: nothing is compared", damped, calm)
	}
}

// TestReplanLetsGoOfDamping: damping of before the change ends in the other plan,
// too, although nothing oscillates there.
func TestReplanLetsGoOfDamping(t *testing.T) {
	var o *other
	oscillating(t, 200, 1.5, func(p *plan.Plan) {
		if s, _ := p.Service("checkout"); o == nil && s.Damping.Level > 0 {
			top := *p.Topology
			top.Services = append([]isobar.Service(nil), top.Services...)
			top.Services[0].Policy = isobar.PolicyNearest
			o = &other{t: t, top: &top}
		}
		if o != nil {
			o.follow(p)
		}
	})
	if d := o.service().Damping; d.Level != 0 || d.Left != 0 || d.Found != 1 {
		t.Errorf("after 200 ticks %+v", *d)
	}
}

// TestReplanIsAsFarAsItWas: mode auto goes forward and back where it went when
// the load was measured; without it, the other plan would stay where it began.
func TestReplanIsAsFarAsItWas(t *testing.T) {
	f := autoFleet(t)
	f.tick()
	same, bounded := &other{t: t}, &other{t: t}
	top := *f.top
	top.Services = append([]isobar.Service(nil), top.Services...)
	top.Services[0].Promote.Until = isobar.ModeBounded
	bounded.top = &top
	seen := map[isobar.Mode]int{}
	for i := range 16 * windowTicks {
		if i == 12*windowTicks {
			f.land = disobey
		}
		f.tick()
		same.follow(f.plan)
		bounded.follow(f.plan)
		mode := f.service().Mode()
		seen[mode]++
		if got := same.service().Mode(); got != mode {
			t.Fatalf("tick %d: %s, want %s", i, got, mode)
		}
		if change, ok := plan.Changed(f.plan, same.plan, plan.Origin{}); ok {
			t.Fatalf("tick %d: other shares under the same configuration: %+v", i, change)
		}
		if got := bounded.service().Mode(); got != mode && (got != isobar.ModeBounded || mode != isobar.ModeFull) {
			t.Fatalf("tick %d: until bounded: %s beside %s", i, got, mode)
		}
	}
	if len(seen) != 3 {
		t.Errorf("modes that were served: %v", seen)
	}
}

// TestGather asserts that a group which has lost all its plans goes on from the shares that
// clients have, whatever their requests do by failover, and that nothing is decided before.
func TestGather(t *testing.T) {
	l := &loop{t: t, decider: plan.NewDecider(interval, nil, t0), top: threeZones(t), now: t0}
	l.turn(l.decider.Reapply)
	l.plan.MakeProvisional()
	l.turn(l.decider.Reapply)
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
