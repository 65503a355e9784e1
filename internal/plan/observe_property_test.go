package plan_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestObserveServesTheBaseline drives random fleets in mode observe through
// random demand, failures, outages and ages: what is served depends on topology
// and health only, as if no client had ever reported anything.
func TestObserveServesTheBaseline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.service.Mode, w.service.Policy = isobar.ModeObserve, isobar.PolicyLatency
		w.topology.Services[0].Mode, w.topology.Services[0].Policy = isobar.ModeObserve, isobar.PolicyLatency
		for _, n := range worldSources {
			w.watches[n] = true
		}
		var want *plan.Plan // of a fleet in which nobody reports anything
		step := func(trigger assign.Trigger) {
			in := w.input(trigger)
			p, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			w.plan = p
			in.Previous, in.Load, in.Findings = want, nil, nil
			if want, err = plan.Next(in); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			w.drawHealth(t)
			step(assign.Rebase)
			for range 11 { // until all have gone where they should
				w.drawRates(t)
				w.drawFindings(t)
				for _, n := range worldSources {
					w.watches[n] = true
				}
				step(assign.Tick)
			}
			wantSameShares(t, w.plan, want)
		}
	})
}

func wantSameShares(t *rapid.T, got, want *plan.Plan) {
	g, _ := got.Service("checkout")
	s, _ := want.Service("checkout")
	if g.Result.Drop != 0 {
		t.Fatalf("it drops %v", g.Result.Drop)
	}
	for _, n := range worldSources {
		a, b := g.Result.Source(sourceOf(n)), s.Result.Source(sourceOf(n))
		for l := range b.Shares {
			if math.Abs(a.Shares[l]-b.Shares[l]) > 0.01 {
				t.Fatalf("from %q: %v, want %v; findings %+v, reasons %+v", n, a.Shares, b.Shares, g.Findings, a.Reasons)
			}
		}
	}
}

// A locality that declares its capacity is not nearer than one that does not.
func TestUndeclaredCapacityIsNotNone(t *testing.T) {
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		for _, rates := range []map[string]float64{nil, {"eu/a": 40}, {"eu/a": 40, "us/a": 30}} {
			top := threeZones(t)
			s := &top.Services[0]
			s.Mode = mode
			for i := range s.Localities {
				for k := range s.Localities[i].Endpoints {
					s.Localities[i].Endpoints[k].MaxRate = 0
				}
				s.Localities[i].MaxRate = 0
				if s.Localities[i].Locality == loc("us/b") {
					s.Localities[i].MaxRate = 1000
				}
			}
			var p *plan.Plan
			for i := range uint64(3) {
				in := plan.Input{Now: t0.Add(time.Duration(i) * interval), Trigger: assign.Tick, Topology: top, Previous: p, Version: i + 1}
				in.Load = demand(in.Now, "checkout", rates)
				for _, n := range []string{"eu/a", "eu/z", "us/a"} {
					in.Subscribed = append(in.Subscribed, load.Subscription{Service: "checkout", Source: loc(n)})
				}
				p = decided(t, in)
			}
			for from, to := range map[string]string{"eu/a": "eu/a", "eu/z": "eu/a", "us/a": "us/a"} {
				if got := share(t, p, from, to); got < 0.95 {
					t.Errorf("mode %v, demand %v: %.2f of the traffic from %s go to %s, want nearly all", mode, rates, got, from, to)
				}
			}
		}
	}
}

// What clients are told of failures names source, locality and figure.
func TestFailuresAreTold(t *testing.T) {
	window := func(issued, errs, ok, dropped float64) load.SourceLoad {
		return load.SourceLoad{
			Source: loc("us/a"), Raw: issued + dropped, Drop: dropped, Window: interval, Nodes: 2,
			Landed: []load.LandedLoad{{Locality: loc("us/b"), Issued: issued, Errors: errs, Succeeded: ok}},
		}
	}
	well := window(100, 0, 100, 0)
	well.Source = loc("us/c")
	intended := window(50, 0, 50, 50)
	intended.Drops = []load.CategoryDrop{{Category: isobar.DropCategory, Rate: 50}}
	for name, tc := range map[string]struct {
		load load.SourceLoad
		want []string
	}{
		"in order":           {window(100, 1, 99, 0), nil},
		"one of few":         {window(0.2, 0.2, 0, 0), nil},
		"a tenth":            {window(100, 20, 80, 0), []string{"10% of the requests fail: most of them from us/a to us/b, where 20 of 100 requests/s do"}},
		"everything":         {window(100, 100, 0, 0), []string{"nothing from us/a gets through: 100 requests/s fail or get no answer", "50% of the requests fail: most of them from us/a to us/b, where 100 of 100 requests/s do"}},
		"no answer":          {window(100, 0, 0, 0), []string{"nothing from us/a gets through: 100 requests/s fail or get no answer"}},
		"drops that we want": {intended, nil},
		"breakers":           {window(50, 0, 50, 50), []string{"25% of the requests fail: clients in us/a refuse 50 of 100 requests/s themselves, by circuit breakers"}},
	} {
		s := &plan.Service{Load: &load.ServiceLoad{Sources: []load.SourceLoad{tc.load, well}}}
		got := plan.Texts(s.Failures())
		if len(got) != len(tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%s: %q, want %q", name, got[i], tc.want[i])
			}
		}
	}
}
