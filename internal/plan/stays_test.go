package plan_test

import (
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// next makes the plan that follows, 5 s later.
func next(t *testing.T, prev *plan.Plan, in plan.Input) *plan.Plan {
	t.Helper()
	in.Now, in.Previous, in.Version = prev.Made.Add(5*time.Second), prev, prev.Version+1
	if in.Load != nil {
		in.Load.At = in.Now
	}
	return decided(t, in)
}

// Distances that a reload changes are those of the next tick, also where demand
// went on all the time: what is kept over the reapplication between must not keep the old
// ones.
func TestReloadOfTheNetworkIsTakenUp(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 1500, "us/b": 700}
	p := ticks(t, top, 8, rates)
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 7}, {From: loc("us/a"), To: loc("us/b"), MS: 50}})
	if err != nil {
		t.Fatal(err)
	}
	moved := *top
	moved.Network, moved.Revision = network, 2
	before := share(t, p, "us/a", "eu/a")
	p = next(t, p, plan.Input{Trigger: assign.Reapply, Topology: &moved})
	for range 20 {
		p = next(t, p, plan.Input{Trigger: assign.Tick, Topology: &moved, Load: demand(t0, "checkout", rates)})
	}
	s, _ := p.Service("checkout")
	for i, source := range s.Solved {
		for l := range s.Sites {
			if want, _ := network.Latency(source, s.Sites[l].Group.Locality); s.Problem.Latency[i][l] != want {
				t.Errorf("%s to %s is solved with %v ms, want %v", source, s.Sites[l].Group.Locality, s.Problem.Latency[i][l], want)
			}
		}
	}
	if after := share(t, p, "us/a", "eu/a"); after <= before+0.05 {
		t.Errorf("eu/a is nearer than us/b now, and gets %.2f of us/a after %.2f", after, before)
	}
}

// A limit is in force, too, where other services call and no capacity is known.
func TestLimitOfACallee(t *testing.T) {
	top := callers(t, 1, 1000)
	pay := &top.Services[1]
	pay.Limits = []isobar.Limit{{Metric: isobar.MetricRate, Max: 300}}
	for l := range pay.Localities {
		pay.Localities[l].MaxRate = 0
	}
	top.Normalize()
	f := &callFleet{top: top, ratio: 1, demand: 450}
	s, _ := f.settle(t).Service("pay")
	for l := range s.Sites {
		if allowed := s.Sites[l].Ceiling * s.Sites[l].Capacity; math.Abs(allowed-300) > 1e-6 || s.Limited[l].By != 0 {
			t.Errorf("%s may carry %.0f/s by its limit of 300, %+v", s.Sites[l].Group.Locality, allowed, s.Limited[l])
		}
	}
	for l := range s.Sites {
		lands := 0.0
		for _, r := range s.Result.Sources {
			lands += r.Demand * r.Shares[l]
		}
		if lands > 301 {
			t.Errorf("%.0f/s land where 300 are allowed", lands)
		}
	}
}

// What was learned stands while nobody sends anything, and is saved: a quiet night
// with a restart brings no equal-count rule back.
func TestLearnedStaysOverAQuietNight(t *testing.T) {
	f := newFit(t, 0)
	for range 300 {
		f.tick(450)
	}
	was := f.row("us/a")
	if was.Learned == nil || was.Learned.State != load.CapacityLearned {
		t.Fatalf("nothing was learned: %+v", was)
	}
	for range 300 {
		f.tick(0)
	}
	var gone []load.StreamWindow
	for i := range load.StreamID(3) {
		gone = append(gone, load.StreamWindow{
			Stream: i + 1, Opened: t0, Closed: f.now.Add(time.Second), Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy},
		})
	}
	for range 1000 {
		f.now = f.now.Add(interval)
		f.turn(f.decider.Tick, gone...)
		gone = nil
	}
	s, _ := f.plan.Service("checkout")
	if s.Load != nil && len(s.Load.Sources) > 0 {
		t.Fatalf("the night is not quiet: %+v", s.Load)
	}
	for _, saved := range f.plan.Save().Services {
		if len(saved.Learned) == 0 {
			t.Errorf("nothing that was learned is saved: %+v", saved)
		}
	}
	if got := f.row("us/a"); math.Abs(got.Capacity-was.Capacity) > 1 {
		t.Errorf("capacity %.1f in the morning, was %.1f", got.Capacity, was.Capacity)
	}
}

// Whatever rates configurations and limits amount to, something is decided.
func TestRatesBeyondTheSolver(t *testing.T) {
	for name, change := range map[string]func(s *isobar.Service){
		"vast":       func(s *isobar.Service) { s.Localities[0].MaxRate = 1e12 },
		"more":       func(s *isobar.Service) { s.Localities[0].MaxRate, s.Localities[0].CapacityScaler = 1e12, 10 },
		"tiny":       func(s *isobar.Service) { s.Localities[0].MaxRate = 1e-7 },
		"low":        func(s *isobar.Service) { s.Localities[0].Ceiling = 1e-5 },
		"tiny limit": func(s *isobar.Service) { s.Limits = []isobar.Limit{{Metric: isobar.MetricRate, Max: 1e-3}} },
	} {
		top := threeZones(t)
		s := &top.Services[0]
		s.Localities[0].Concurrency, s.ServiceTimeMS = 0, 10
		change(s)
		top.Normalize()
		p := ticks(t, top, 3, map[string]float64{"us/a": 400, "us/b": 100})
		if got, _ := p.Service("checkout"); got.Hold != "" || got.Solution == nil {
			t.Errorf("%s: held: %s", name, got.Hold)
		}
	}
}

// What is dropped ends when nobody sends anything any more: those who come back
// find headroom.
func TestDropEndsWithDemand(t *testing.T) {
	top := threeZones(t)
	top.Services[0].MaxShed = 0.5
	p := ticks(t, top, 5, map[string]float64{"us/a": 2500, "us/b": 1500})
	s, _ := p.Service("checkout")
	if s.Result.Drop < 0.2 {
		t.Fatalf("drops %v of far too much", s.Result.Drop)
	}
	p = next(t, p, plan.Input{Trigger: assign.Reapply, Topology: top})
	if again, _ := p.Service("checkout"); again.Result.Drop != s.Result.Drop {
		t.Errorf("a reapplication drops %v after %v", again.Result.Drop, s.Result.Drop)
	}
	for range 10 {
		p = next(t, p, plan.Input{Trigger: assign.Tick, Topology: top, Load: &load.Snapshot{}})
	}
	if s, _ = p.Service("checkout"); s.Result.Drop != 0 {
		t.Errorf("drops %v of nothing", s.Result.Drop)
	}
	if p.Objective > 0 {
		t.Errorf("nothing costs %v", p.Objective)
	}
}
