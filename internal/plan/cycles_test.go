package plan_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// oscillating lets plans follow each other in a fleet whose us/b over-reacts: the
// more it gets, the less it seems to be able to carry, by half as much again.
// It gives the share of us/b after each of the ticks, and the plan to whoever
// wants to see it.
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
		t.Errorf("it swings by %.3f before and %.3f after: %.3f", before, after, shares)
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
		t.Errorf("swings by %.3f", a)
	}
}
