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

func TestCapacityAndWeightsOfALocality(t *testing.T) {
	down := isobar.Unhealthy
	tests := []struct {
		name              string
		sl                isobar.ServiceLocality
		nominal, capacity float64
		weights           []uint32
	}{
		{"locality rate, even", isobar.ServiceLocality{MaxRate: 1000, Endpoints: endpoints("1.1.1.1:1", "1.1.1.2:1")}, 1000, 1000, []uint32{1, 1}},
		{"one of two down", isobar.ServiceLocality{MaxRate: 1000, Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1"}, {Address: "1.1.1.2:1", Health: down}}}, 1000, 500, []uint32{1, 1}},
		{"degraded counts as down", isobar.ServiceLocality{MaxRate: 1000, Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1"}, {Address: "1.1.1.2:1", Health: isobar.Degraded}}}, 1000, 500, []uint32{1, 1}},
		{"configured weights share the rate", isobar.ServiceLocality{MaxRate: 900, Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1", Weight: 2}, {Address: "1.1.1.2:1", Health: down}}}, 900, 600, []uint32{2, 1}},
		{"endpoint rates", isobar.ServiceLocality{Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1", MaxRate: 200}, {Address: "1.1.1.2:1", MaxRate: 100}}}, 300, 300, []uint32{1000, 500}},
		{"rest of the locality's rate", isobar.ServiceLocality{MaxRate: 500, Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1", MaxRate: 200}, {Address: "1.1.1.2:1"}, {Address: "1.1.1.3:1"}}}, 500, 500, []uint32{1000, 750, 750}},
		{"unknown ones count as the mean", isobar.ServiceLocality{Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1", MaxRate: 200}, {Address: "1.1.1.2:1"}}}, 400, 400, []uint32{1, 1}},
		{"the locality's rate leaves nothing", isobar.ServiceLocality{MaxRate: 100, Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1", MaxRate: 100, Health: down}, {Address: "1.1.1.2:1"}}}, 101, 1, []uint32{1000, 10}},
		{"or less than nothing", isobar.ServiceLocality{MaxRate: 100, Endpoints: []isobar.Endpoint{{Address: "1.1.1.1:1", MaxRate: 200}, {Address: "1.1.1.2:1", Weight: 3}, {Address: "1.1.1.3:1"}}}, 204, 204, []uint32{1, 3, 1}},
		{"scaler", isobar.ServiceLocality{MaxRate: 1000, CapacityScaler: 0.5, Endpoints: endpoints("1.1.1.1:1")}, 500, 500, []uint32{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.sl.Locality = loc("us/a")
			top := &isobar.Topology{Services: []isobar.Service{{Name: "checkout", Localities: []isobar.ServiceLocality{tt.sl}}}}
			p := ticks(t, top, 1, nil)
			site := serviceOf(t, p).Sites[0]
			if math.Abs(site.Nominal-tt.nominal) > 1e-9 || math.Abs(site.Capacity-tt.capacity) > 1e-9 {
				t.Errorf("nominal %v, capacity %v; want %v, %v", site.Nominal, site.Capacity, tt.nominal, tt.capacity)
			}
			for i, e := range site.Group.Endpoints {
				if e.Weight != tt.weights[i] {
					t.Errorf("endpoint %d has weight %d, want %d", i, e.Weight, tt.weights[i])
				}
			}
		})
	}
}

func serviceOf(t *testing.T, p *plan.Plan) *plan.Service {
	t.Helper()
	s, ok := p.Service("checkout")
	if !ok {
		t.Fatal("no service checkout")
	}
	return s
}

// Without declared capacity endpoints count equal: a zone keeps up to 1.25
// times the mean rate per endpoint of its region and spills the rest to the
// nearest.
func TestUndeclaredCapacity(t *testing.T) {
	top := threeZones(t)
	for i := range top.Services[0].Localities {
		top.Services[0].Localities[i].MaxRate, top.Services[0].Localities[i].Concurrency = 0, 0
	}
	rates := map[string]float64{"us/a": 300, "us/b": 100, "eu/a": 50}
	p := ticks(t, top, 8, rates)
	if s := share(t, p, "us/a", "us/a"); math.Abs(s-250.0/300) > 0.02 {
		t.Errorf("us/a keeps %.3f, want 250 of 300: the mean of its region is 200 a zone", s)
	}
	if s := share(t, p, "us/a", "us/b"); math.Abs(s-50.0/300) > 0.02 {
		t.Errorf("us/a spills %.3f to us/b, want 50 of 300", s)
	}
	if s := share(t, p, "eu/a", "eu/a"); s < 0.99 {
		t.Errorf("eu/a keeps %.3f, want all", s)
	}
}

// A region that sends nothing itself has headroom for others, and its own clients
// are told to stay when they come.
func TestUndeclaredCapacityOfAnIdleRegion(t *testing.T) {
	top := threeZones(t)
	for i := range top.Services[0].Localities {
		top.Services[0].Localities[i].MaxRate, top.Services[0].Localities[i].Concurrency = 0, 0
	}
	p := ticks(t, top, 3, map[string]float64{"us/a": 60, "us/b": 60})
	if s := share(t, p, "eu/a", "eu/a"); s < 0.99 {
		t.Errorf("clients in eu/a, which send nothing yet, would send %.3f to eu/a, want all", s)
	}
	for i, site := range serviceOf(t, p).Sites {
		if site.Capacity <= 0 {
			t.Errorf("site %d has capacity %v with all endpoints healthy", i, site.Capacity)
		}
	}
}

// What does not fit into declared capacity spills to where none is declared.
func TestDeclaredOverflowSpillsToUndeclared(t *testing.T) {
	top := threeZones(t)
	eu := &top.Services[0].Localities[0]
	eu.MaxRate, eu.Concurrency = 0, 0
	p := ticks(t, top, 12, map[string]float64{"us/a": 1200, "us/b": 900})
	s := serviceOf(t, p)
	if s.Solution.CeilingScale > 1 {
		t.Errorf("ceilings were raised by %.2f with a whole region idle", s.Solution.CeilingScale)
	}
	if got := share(t, p, "us/a", "eu/a") + share(t, p, "us/b", "eu/a"); got < 0.2 {
		t.Errorf("%.3f go to eu/a, want what is above 1600 of 2100", got)
	}
}

// Evidence against all localities removes one of three: whoever makes the
// rest look dead as well is more likely wrong than right.
func TestEvidenceTakesHalfAtTheMost(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 300, "us/b": 300, "eu/a": 300}
	before := ticks(t, top, 3, rates)
	now := before.Made.Add(5)
	p, err := plan.Next(plan.Input{
		Now: now, Trigger: assign.Tick, Topology: top, Previous: before, Version: before.Version + 1, Load: demand(now, "checkout", rates),
		Deviations: []load.Deviations{{Service: "checkout", Unreachable: []isobar.Locality{loc("eu/a"), loc("us/a"), loc("us/b")}}},
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
	for _, trigger := range []assign.Trigger{assign.Reapply, assign.Tick} {
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
