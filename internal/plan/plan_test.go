package plan_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

var t0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func loc(s string) isobar.Locality { return isobar.MustLocality(s) }

// threeZones is a service with two zones in one region and one far away.
func threeZones(t *testing.T) *isobar.Topology {
	t.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	top := &isobar.Topology{Network: network, Revision: 1, Services: []isobar.Service{{
		Name: "checkout",
		Localities: []isobar.ServiceLocality{
			{Locality: loc("us/a"), MaxRate: 1000, Concurrency: 20, Endpoints: endpoints("10.0.0.1:80", "10.0.0.2:80")},
			{Locality: loc("us/b"), MaxRate: 1000, Concurrency: 20, Endpoints: endpoints("10.0.1.1:80", "10.0.1.2:80")},
			{Locality: loc("eu/a"), MaxRate: 1000, Concurrency: 20, Endpoints: endpoints("10.1.0.1:80", "10.1.0.2:80")},
		},
	}}}
	top.Normalize()
	return top
}

func endpoints(addrs ...string) []isobar.Endpoint {
	out := make([]isobar.Endpoint, len(addrs))
	for i, a := range addrs {
		out[i].Address = a
	}
	return out
}

// demand makes a snapshot of one service.
func demand(now time.Time, service string, rates map[string]float64) *load.Snapshot {
	s := load.ServiceLoad{Name: service, Coverage: 1, Covered: true}
	for _, name := range []string{"", "eu/a", "us/a", "us/b"} {
		if r, ok := rates[name]; ok {
			s.Sources = append(s.Sources, load.SourceLoad{Source: loc(name), Demand: r, Raw: r, Nodes: 3, Since: now.Add(-5 * time.Second), Newest: now.Add(-2 * time.Second)})
		}
	}
	return &load.Snapshot{At: now, Services: []load.ServiceLoad{s}}
}

// ticks plans n ticks of constant demand from nothing.
func ticks(t *testing.T, top *isobar.Topology, n int, rates map[string]float64) *plan.Plan {
	t.Helper()
	var prev *plan.Plan
	for range n {
		in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Previous: prev, Version: 1}
		if prev != nil {
			in.Now, in.Version = prev.Made.Add(5*time.Second), prev.Version+1
		}
		in.Load = demand(in.Now, "checkout", rates)
		prev = decided(t, in)
	}
	return prev
}

// decided makes a plan, in which nothing may be violated.
func decided(t *testing.T, in plan.Input) *plan.Plan {
	t.Helper()
	p, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Violations) > 0 {
		t.Fatalf("violations: %+v", p.Violations)
	}
	return p
}

func share(t *testing.T, p *plan.Plan, source, to string) float64 {
	t.Helper()
	a := p.Assignment("checkout", loc(source))
	if a == nil {
		t.Fatalf("no assignment for %s", source)
	}
	return a.Share(loc(to))
}

func TestNextKeepsTrafficLocalWhileItFits(t *testing.T) {
	p := ticks(t, threeZones(t), 1, map[string]float64{"us/a": 300, "us/b": 300, "eu/a": 300})
	for _, z := range []string{"us/a", "us/b", "eu/a"} {
		if s := share(t, p, z, z); s < 0.99 {
			t.Errorf("%s keeps %.3f of its traffic, want all", z, s)
		}
	}
}

func TestNextSpillsToTheNextZoneNotTheNextRegion(t *testing.T) {
	p := ticks(t, threeZones(t), 8, map[string]float64{"us/a": 1200, "us/b": 100})
	if s := share(t, p, "us/a", "us/b"); s < 0.3 || s > 0.6 {
		t.Errorf("us/a sends %.3f to us/b, want about half of 1200 over two zones of 800", s)
	}
	if s := share(t, p, "us/a", "eu/a"); s > 0.02 {
		t.Errorf("us/a sends %.3f to eu/a, want none", s)
	}
	s, _ := p.Service("checkout")
	for i := range s.Sites {
		if y := s.Result.Load[i]; y > s.Sites[i].Limit()+1e-6 {
			t.Errorf("%s carries %.1f above its limit %.1f", s.Sites[i].Group.Locality, y, s.Sites[i].Limit())
		}
	}
	if s.Solution.Gap > 0.005 || s.PlanGap > 0.05 {
		t.Errorf("gap %.4f, plan gap %.4f", s.Solution.Gap, s.PlanGap)
	}
}

func TestNextIsDeterministic(t *testing.T) {
	run := func() []byte {
		p := ticks(t, threeZones(t), 5, map[string]float64{"": 50, "us/a": 1200, "us/b": 100, "eu/a": 700})
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if a, b := run(), run(); string(a) != string(b) {
		t.Error("the same input gave two different plans")
	}
}

func TestReapplyMovesShareOffDeadCapacityAtOnce(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 3, map[string]float64{"us/a": 400, "us/b": 100})
	table := health.NewTable([]health.Override{
		{Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Status: isobar.Unhealthy},
		{Key: health.Key{Service: "checkout", Address: "10.0.0.2:80"}, Status: isobar.Unhealthy},
	})
	next, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Health: table, Previous: p, Version: p.Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(next.Violations) > 0 {
		t.Errorf("violations: %+v", next.Violations)
	}
	if s := share(t, next, "us/a", "us/a"); s != 0 {
		t.Errorf("us/a still sends %.3f to itself", s)
	}
	if s := share(t, next, "us/a", "us/b"); s < 0.99 {
		t.Errorf("us/a sends %.3f to us/b, want all: it has the headroom", s)
	}
}

func TestReapplyWithoutChangeChangesNothing(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 3, map[string]float64{"us/a": 1200, "us/b": 100})
	next, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Previous: p, Version: p.Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range []string{"us/a", "us/b"} {
		if p.Assignment("checkout", loc(z)) != next.Assignment("checkout", loc(z)) {
			t.Errorf("%s: the assignment was made anew", z)
		}
	}
}

func TestSaveAndRestoreServeTheSameWeights(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 6, map[string]float64{"us/a": 1200, "us/b": 100, "eu/a": 10})
	before := p.Save()
	b, err := before.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var saved plan.Saved
	if err := json.Unmarshal(b, &saved); err != nil {
		t.Fatal(err)
	}
	restored, err := plan.Restore(&saved, top, health.Table{}, t0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if restored.Version <= p.Version {
		t.Errorf("version went from %d to %d", p.Version, restored.Version)
	}
	for _, z := range []string{"us/a", "us/b", "eu/a"} {
		want, _ := json.Marshal(p.Assignment("checkout", loc(z)))
		got, _ := json.Marshal(restored.Assignment("checkout", loc(z)))
		if string(want) != string(got) {
			t.Errorf("%s:\nbefore %s\nafter  %s", z, want, got)
		}
	}
	if d := saved.Demand(); len(d) != 3 || math.Abs(d[1].Rate-1200) > 1e-9 {
		t.Errorf("saved demand: %+v", d)
	}
}

// The state has the same content as with encoding/json, which later versions may use again.
func TestSavedJSON(t *testing.T) {
	two := ticks(t, threeZones(t), 3, map[string]float64{"us/a": 900, "us/b": 100})
	saved := two.Save()
	saved.Paused = plan.Pauses{{Service: "checkout <&>", Since: t0}}
	saved.Services = append(saved.Services, plan.SavedService{Name: "search <&>"})
	for _, s := range []plan.Saved{{}, saved} {
		got, err := s.AppendJSON([]byte(" "))
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var a, b plan.Saved
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal(want, &b)); err != nil {
			t.Fatal(err)
		}
		if len(b.Services) == 0 {
			b.Services = []plan.SavedService{} // it was null
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestSavedDemandIsWhatWasMeasured: a restart looks for the reports of all that
// clients sent, also of what lands elsewhere than it is told to.
func TestSavedDemandIsWhatWasMeasured(t *testing.T) {
	now := t0
	p, err := plan.Next(plan.Input{
		Now: now, Topology: threeZones(t), Version: 1, Load: demand(now, "checkout", map[string]float64{"us/a": 500}),
		Deviations: []load.Deviations{{Service: "checkout", Unmanaged: []load.Landing{{Source: loc("us/a"), Locality: loc("us/b"), Rate: 200}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := p.Service("checkout"); s.Result.Sources[0].Demand != 300 {
		t.Fatalf("%.0f requests/s can be steered, want 300", s.Result.Sources[0].Demand)
	}
	saved := p.Save()
	if d := saved.Demand(); len(d) != 1 || d[0].Rate != 500 {
		t.Errorf("saved demand: %+v, want 500", d)
	}
}

// TestSavedDemandOutlivesAShortProcess: a process that ends before its first
// decision saves what the one before it knew.
func TestSavedDemandOutlivesAShortProcess(t *testing.T) {
	l := demand(t0, "checkout", map[string]float64{"us/a": 500})
	l.Services[0].Sources[0].Variability, l.Services[0].Sources[0].Claimed = 0.3, 200
	p, err := plan.Next(plan.Input{Now: t0, Topology: threeZones(t), Version: 1, Load: l})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		saved := p.Save()
		if d := saved.Demand(); len(d) != 1 || d[0].Variability != 0.3 || d[0].Unproven != 200 {
			t.Fatalf("saved demand: %+v, want a variability of 0.3, and 200 unproven", d)
		}
		if p, err = plan.Restore(&saved, threeZones(t), health.Table{}, t0, p.Version+1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBarredFromEverywhereIsStillAnswered: who can't reach anything is told to go
// on trying everything that is there.
func TestBarredFromEverywhereIsStillAnswered(t *testing.T) {
	top := threeZones(t)
	f := load.Deviations{Service: "checkout"}
	for _, l := range []string{"eu/a", "us/a", "us/b"} {
		f.Barred = append(f.Barred, load.Barred{Source: loc("us/a"), Locality: loc(l), Since: t0})
	}
	p, err := plan.Next(plan.Input{Now: t0, Topology: top, Version: 1, Load: demand(t0, "checkout", map[string]float64{"us/a": 500, "us/b": 100}), Deviations: []load.Deviations{f}})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := p.Service("checkout")
	if len(p.Violations) > 0 || len(s.Solved) != 2 || slices.Max(s.Solution.Unreachable) > 0 {
		t.Errorf("violations %v, %v solved: %+v", p.Violations, s.Solved, s.Solution)
	}
	if got := share(t, p, "us/a", "us/a"); got < 0.5 {
		t.Errorf("us/a keeps %.3f of its traffic, want most", got)
	}
}

func TestRestoreSurvivesDamagedEntries(t *testing.T) {
	saved := plan.Saved{Version: 7, Services: []plan.SavedService{{
		Name: "checkout", Drop: 3, Sites: []isobar.Locality{loc("us/a"), loc("mars/a")}, Prices: []float64{1},
		Sources: []plan.SavedSource{
			{Source: loc("us/a"), Demand: -1, Shares: []float64{1, 0}},
			{Source: loc("us/b"), Demand: 5, Shares: []float64{0.5}},
			{Source: loc("eu/a"), Demand: 5, Shares: []float64{math.NaN(), 1}},
		},
	}, {Name: "gone"}}}
	p, err := plan.Restore(&saved, threeZones(t), health.Table{}, t0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if s := share(t, p, "us/a", "us/a"); s != 1 {
		t.Errorf("us/a keeps %.3f, want the baseline", s)
	}
}

func TestNextRefusesVersionsThatDoNotGrow(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 1, nil)
	if _, err := plan.Next(plan.Input{Now: t0, Topology: top, Previous: p, Version: p.Version}); err == nil {
		t.Error("a version that does not grow was taken")
	}
}

func TestHoldWhileCoverageIsLow(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 3, map[string]float64{"us/a": 300, "us/b": 100})
	in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1}
	in.Load = demand(t0, "checkout", map[string]float64{"us/a": 2000})
	in.Load.Services[0].Coverage, in.Load.Services[0].Covered = 0.3, false
	held, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	if p.Assignment("checkout", loc("us/a")) != held.Assignment("checkout", loc("us/a")) {
		t.Error("weights moved at 30% coverage")
	}
	e, err := held.Explain("checkout", loc("us/a"))
	if err != nil || e.Binding.Kind != plan.BindingHold {
		t.Errorf("explain says %+v, %v; want hold", e.Binding, err)
	}
}

// What clients spill through lower tiers takes headroom where it lands, and stays
// demand: when the reason goes, all of it has to be placed.
func TestFailoverOfClientsStaysDemand(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 3, map[string]float64{"us/a": 400})
	for _, tt := range []struct {
		failover bool
		demand   float64
	}{{true, 400}, {false, 100}} {
		in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1, Load: demand(t0, "checkout", map[string]float64{"us/a": 400})}
		in.Deviations = []load.Deviations{{Service: "checkout", Unmanaged: []load.Landing{
			{Source: loc("us/a"), Locality: loc("us/b"), Rate: 300, Failover: tt.failover},
		}}}
		next, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		s := serviceOf(t, next)
		if got := s.Result.Source(loc("us/a")).Demand; math.Abs(got-tt.demand) > 1e-9 {
			t.Errorf("failover %v: demand %.0f, want %.0f", tt.failover, got, tt.demand)
		}
		if got := s.Sites[2].Unmanaged; got != 300 {
			t.Errorf("failover %v: unmanaged load %.0f where it lands, want 300", tt.failover, got)
		}
	}
}

// TestBasis: where it is equal in two plans all clients get the same, also those
// in places that the plan does not know; it is equal where nothing was decided.
func TestBasis(t *testing.T) {
	top := threeZones(t)
	other := top.Services[0]
	other.Name = "other"
	top.Services = append(top.Services, other)
	top.Normalize()
	before := ticks(t, top, 3, map[string]float64{"us/a": 400, "us/b": 100})
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 10}})
	if err != nil {
		t.Fatal(err)
	}
	moved := *top
	moved.Network, moved.Revision = network, 2
	sick := health.NewTable([]health.Override{{Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Status: isobar.Unhealthy}})
	for _, tt := range []struct {
		name            string
		in              plan.Input
		checkout, other bool // the basis is equal
	}{
		{"nothing", plan.Input{Trigger: assign.Reapply, Topology: top}, true, true},
		{"health", plan.Input{Trigger: assign.Reapply, Topology: top, Health: sick}, false, true},
		{"network", plan.Input{Trigger: assign.Reapply, Topology: &moved}, false, false},
		{"new client", plan.Input{Trigger: assign.Reapply, Topology: top, Subscribed: []load.Subscription{{Service: "other", Source: loc("eu/b")}}}, true, false},
		{"tick", plan.Input{Trigger: assign.Tick, Topology: top, Load: demand(t0, "checkout", map[string]float64{"us/a": 500})}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now, tt.in.Previous, tt.in.Version = t0, before, before.Version+1
			after, err := plan.Next(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]bool{"checkout": tt.checkout, "other": tt.other} {
				equal := before.Basis(name) == after.Basis(name)
				if equal != want {
					t.Errorf("the basis of %s is equal: %v, want %v", name, equal, want)
				}
				for _, z := range []string{"", "us/a", "us/b", "eu/a", "eu/b", "ap/a"} {
					if equal && assignedTo(t, before, name, z) != assignedTo(t, after, name, z) {
						t.Errorf("%s in %q gets something else on an equal basis", name, z)
					}
				}
			}
		})
	}
	if b := before.Basis("missing"); b != nil {
		t.Errorf("the basis of a service that is not there: %v", b)
	}
}

func assignedTo(t *testing.T, p *plan.Plan, service, source string) string {
	t.Helper()
	b, err := json.Marshal(p.Assignment(service, loc(source)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
