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
