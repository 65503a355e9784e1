package plan_test

import (
	"math"
	"math/rand/v2"
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
