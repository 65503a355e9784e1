package plan_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/solver"
)

// hotZone is three zones of a region, of which us/a has most of the demand, and
// a far one.
func hotZone(t *testing.T) *isobar.Topology {
	t.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	s := isobar.Service{Name: "checkout"}
	for i, zone := range []string{"eu/a", "us/a", "us/b", "us/c"} {
		addresses := []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"}
		for j := range addresses {
			addresses[j] = "10.0." + string(rune('0'+i)) + addresses[j][6:]
		}
		s.Localities = append(s.Localities, isobar.ServiceLocality{Locality: loc(zone), MaxRate: 1000, Concurrency: 40, Endpoints: endpoints(addresses...)})
	}
	return &isobar.Topology{Network: network, Revision: 1, Services: []isobar.Service{s}}
}

var hotZoneSources = []string{"eu/a", "us/a", "us/b", "us/c"}

// ticker plans tick by tick for demand that a function gives.
func ticker(t *testing.T, rate func(tick, source int) float64) func() *plan.Service {
	t.Helper()
	topology, at := hotZone(t), 0
	var p *plan.Plan
	return func() *plan.Service {
		in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: topology, Previous: p, Version: 1}
		if p != nil {
			in.Now, in.Version = p.Made.Add(5*time.Second), p.Version+1
		}
		sl := load.ServiceLoad{Name: "checkout", Coverage: 1, Covered: true}
		for i, s := range hotZoneSources {
			demand := rate(at, i)
			sl.Sources = append(sl.Sources, load.SourceLoad{Source: loc(s), Demand: demand, Raw: demand, Nodes: 5})
		}
		in.Load = &load.Snapshot{At: in.Now, Services: []load.ServiceLoad{sl}}
		next, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		if len(next.Violations) > 0 {
			t.Errorf("tick %d: %v", at, next.Violations)
		}
		p = next
		at++
		return p.Services[0]
	}
}

// TestSettlesOnTheMean: where demand does nothing but fluctuate, the published
// shares end at the optimum for its mean, and move at most every 6 ticks, and then 12.
func TestSettlesOnTheMean(t *testing.T) {
	mean := []float64{500, 1150, 400, 400}
	rng := rand.New(rand.NewPCG(1, 2))
	next := ticker(t, func(_, source int) float64 { return mean[source] * (1 + 0.006*rng.NormFloat64()) })
	s := next()
	last, quiet := s.Result, 0
	for tick := range 200 {
		s = next()
		moved := false
		for i := range s.Result.Sources {
			moved = moved || s.Result.Sources[i].Assignment != last.Sources[i].Assignment
		}
		quiet++
		if moved {
			if tick > 40 && quiet < 6 {
				t.Errorf("tick %d: shares moved again after %d ticks", tick, quiet)
			}
			quiet = 0
		}
		last = s.Result
	}
	problem := *s.Problem
	problem.Demand, problem.Previous = mean, nil
	best, err := solver.Solve(solver.Problem{Services: []solver.Service{problem}})
	if err != nil {
		t.Fatal(err)
	}
	flows, fullest := make([][]float64, len(mean)), 0.0
	for i := range flows {
		flows[i] = make([]float64, len(s.Sites))
		for l, share := range s.Result.Sources[i].Shares {
			flows[i][l] = share * mean[i]
		}
	}
	for l := range s.Sites {
		y := 0.0
		for i := range flows {
			y += flows[i][l]
		}
		fullest = math.Max(fullest, y/s.Sites[l].Capacity)
	}
	total := mean[0] + mean[1] + mean[2] + mean[3]
	if excess := (solver.Objective(problem, flows) - best.Objective) / total; excess > 0.0015 {
		t.Errorf("published shares cost %.4f ms more than the optimum", excess)
	}
	if fullest > 0.655 {
		t.Errorf("the fullest zone is at %.2f%%, all three of the region would be at 65.0%%", 100*fullest)
	}
}

// TestNeverCalmUnderMovement: demand that moves is followed as usual, and its
// mean, which means nothing, is not.
func TestNeverCalmUnderMovement(t *testing.T) {
	next := ticker(t, func(tick, source int) float64 {
		if source == 1 && tick/4%2 == 1 {
			return 600
		}
		return 400
	})
	for tick := range 60 {
		if s := next(); s.Steady != nil && s.Steady.Ticks > 5 {
			t.Fatalf("tick %d: calm for %d ticks", tick, s.Steady.Ticks)
		}
	}
}

// oscillating lets plans follow each other in a fleet whose us/b over-reacts: the
// more it gets, the less it seems to be able to carry, by half as much again.
// It returns the share of us/b after each of the ticks, and calls the given
// functions with each plan.
func oscillating(t *testing.T, ticks int, over float64, see ...func(*plan.Plan)) (shares []float64, last *plan.Plan, found []int) {
	t.Helper()
	top := threeZones(t)
	for i := range top.Services[0].Localities {
		top.Services[0].Localities[i].MaxRate = 0
	}
	const demand, calm = 3000.0, 0.2
	now := t0
	var p *plan.Plan
	for tick := range ticks {
		now = now.Add(5 * time.Second)
		share := calm + 0.02 // a little off
		if p != nil {
			share = p.Assignment("checkout", loc("us/a")).Share(loc("us/b"))
		}
		want := max(0.02, calm-over*(share-calm))
		if tick%100 == 99 {
			want += 0.08 // something happens, once
		}
		learned := []load.Capacity{
			{Locality: loc("eu/a"), InUse: demand, At: now},
			{Locality: loc("us/a"), InUse: demand * 0.5 / 0.8 / 2, At: now},
			{Locality: loc("us/b"), InUse: demand * want / 0.8 / 2, At: now},
		}
		in := plan.Input{
			Now: now, Topology: top, Previous: p, Version: uint64(tick + 1), News: true, Scoring: true,
			Load: &load.Snapshot{At: now, Services: []load.ServiceLoad{{
				Name: "checkout", Coverage: 1, Covered: true,
				Sources: []load.SourceLoad{{Source: loc("us/a"), Demand: demand, Raw: demand, Nodes: 3}},
			}}},
			Learned: []plan.LearnedService{{Service: "checkout", Localities: learned}},
		}
		next, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		p = next
		s, _ := p.Service("checkout")
		shares = append(shares, p.Assignment("checkout", loc("us/a")).Share(loc("us/b")))
		if s.Damping.Found > len(found) {
			found = append(found, tick)
		}
		for _, look := range see {
			look(p)
		}
	}
	return shares, p, found
}

func amplitude(shares []float64) float64 { return slices.Max(shares) - slices.Min(shares) }

// TestCycleIsDamped: over-reaction makes shares oscillate; the plan finds it, damps it
// until it is still, told, and tried again in the end.
func TestCycleIsDamped(t *testing.T) {
	shares, p, found := oscillating(t, 60, 1.5)
	if len(found) == 0 || found[0] > 30 {
		t.Fatalf("found at %v: %.3f", found, shares[:40])
	}
	before := amplitude(shares[found[0]-8 : found[0]])
	after := amplitude(shares[40:])
	if before < 0.04 || after > before/3 {
		t.Errorf("it oscillates by %.3f before and %.3f after: %.3f", before, after, shares)
	}
	s, _ := p.Service("checkout")
	if s.Damping.Level == 0 || !strings.Contains(s.Damping.String(), "us/b") && !strings.Contains(s.Damping.String(), "eu/a") {
		t.Errorf("%q", s.Damping)
	}
	e, err := p.Explain("checkout", loc("us/a"))
	if err != nil || e.Damping != s.Damping.String() || e.Damping == "" {
		t.Errorf("explained as %q %v", e.Damping, err)
	}
	_, p, _ = oscillating(t, found[0]+3, 1.5)
	s, _ = p.Service("checkout")
	if !slices.ContainsFunc(s.Result.Sources[0].Reasons, func(r assign.Reason) bool { return r.Code == assign.ReasonDamped }) {
		t.Errorf("reasons %+v", s.Result.Sources[0].Reasons)
	}
}

// TestDampingIsForAWhile: it ends, so that a service that has recovered is quick
// again, and finds it again if the oscillation returns.
func TestDampingIsForAWhile(t *testing.T) {
	_, p, found := oscillating(t, 700, 1.5)
	if len(found) < 2 {
		t.Fatalf("found at %v", found)
	}
	for i := 1; i < len(found); i++ {
		if found[i]-found[i-1] < 60 {
			t.Errorf("found at %v: it was damped", found)
		}
	}
	if s, _ := p.Service("checkout"); s.Damping.Found != len(found) {
		t.Errorf("%d found, counted %d", len(found), s.Damping.Found)
	}
}

// TestCalmIsLeftAlone: what reacts less than it is acted on comes to rest by
// itself.
func TestCalmIsLeftAlone(t *testing.T) {
	shares, p, found := oscillating(t, 95, 0.5)
	if s, _ := p.Service("checkout"); len(found) > 0 || s.Damping.Level != 0 || s.Damping.String() != "" {
		t.Errorf("found at %v: %.3f", found, shares)
	}
	if a := amplitude(shares[80:]); a > 0.02 || math.IsNaN(a) {
		t.Errorf("oscillates by %.3f", a)
	}
}

// between is two zones of equal capacity at the given distances from two
// sources that have no endpoints of their own.
func between(t *testing.T, rules ...isobar.LatencyRule) *isobar.Topology {
	t.Helper()
	network, err := isobar.NewNetwork(rules)
	if err != nil {
		t.Fatal(err)
	}
	return &isobar.Topology{Network: network, Revision: 1, Services: []isobar.Service{{
		Name: "checkout",
		Localities: []isobar.ServiceLocality{
			{Locality: loc("us/a"), MaxRate: 1000, Concurrency: 20, Endpoints: endpoints("10.0.0.1:80", "10.0.0.2:80")},
			{Locality: loc("us/b"), MaxRate: 1000, Concurrency: 20, Endpoints: endpoints("10.0.1.1:80", "10.0.1.2:80")},
		},
	}}}
}

// TestNewSourceLeavesTheOthersWhereTheyAre: where many splits are equally good
// the one that stands is kept, also when a source comes that has no past.
func TestNewSourceLeavesTheOthersWhereTheyAre(t *testing.T) {
	tilted := between(t,
		isobar.LatencyRule{From: loc("us/c"), To: loc("us/a"), MS: 1}, isobar.LatencyRule{From: loc("us/c"), To: loc("us/b"), MS: 5},
		isobar.LatencyRule{From: loc("us/d"), To: loc("us/a"), MS: 5}, isobar.LatencyRule{From: loc("us/d"), To: loc("us/b"), MS: 1})
	flat := between(t)
	var p *plan.Plan
	tick := func(top *isobar.Topology, sources ...string) {
		t.Helper()
		in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Previous: p, Version: 1}
		if p != nil {
			in.Now, in.Version = p.Made.Add(5*time.Second), p.Version+1
		}
		sl := load.ServiceLoad{Name: "checkout", Coverage: 1, Covered: true}
		for _, s := range sources {
			rate := 500.0
			if s == "us/e" {
				rate = 1
			}
			sl.Sources = append(sl.Sources, load.SourceLoad{Source: loc(s), Demand: rate, Raw: rate, Nodes: 2})
		}
		in.Load = &load.Snapshot{At: in.Now, Services: []load.ServiceLoad{sl}}
		next, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		p = next
	}
	for range 5 {
		tick(tilted, "us/c", "us/d") // each to its nearest
	}
	for range 5 {
		tick(flat, "us/c", "us/d") // no longer for a reason, but for no reason to move either
	}
	tick(flat, "us/c", "us/d", "us/e")
	if a, b := share(t, p, "us/c", "us/a"), share(t, p, "us/d", "us/b"); math.Min(a, b) < 0.99 {
		t.Errorf("us/c sends %.3f to us/a and us/d %.3f to us/b: a new source of 1 request/s moved them", a, b)
	}
}
