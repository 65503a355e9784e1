//go:build !race

package plan_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestPlansRecover drives random fleets through random changes of topology,
// health, demand and deviations, by ticks and reapplications: nothing panics, the same
// input gives the same plan, a fallback does less harm than what it replaces,
// and when nothing changes any more the check is content within three ticks.
func TestPlansRecover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 20 {
			trigger := w.happen(t)
			wantMilderFallback(t, w.next(t, trigger))
		}
		w.covered = true
		for calm := range 6 {
			p := w.next(t, assign.Tick)
			if len(p.Violations) > 0 && calm >= 3 {
				t.Fatalf("after %d calm ticks: %+v", calm, p.Violations)
			}
		}
	})
}

// next makes the next plan, twice.
func (w *world) next(t *rapid.T, trigger assign.Trigger) *plan.Plan {
	in := w.input(trigger)
	p, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := asJSON(t, p.Services), asJSON(t, again.Services); a != b {
		t.Fatalf("the same input gave two plans:\n%s\n%s", a, b)
	}
	for _, n := range worldSources {
		if _, err := p.Explain("checkout", sourceOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	w.plan = p
	return p
}

func asJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantMilderFallback looks at a plan that the check did not like.
func wantMilderFallback(t *rapid.T, p *plan.Plan) {
	var refused, left []invariant.Violation
	for _, v := range p.Violations {
		if strings.HasPrefix(v.Text, "also in the previous assignment: ") {
			left = append(left, v)
		} else {
			refused = append(refused, v)
		}
	}
	s, _ := p.Service("checkout")
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		fell := slices.ContainsFunc(r.Reasons, func(x assign.Reason) bool { return x.Code == assign.ReasonFallback })
		if fell && !invariant.Milder(left, refused) {
			t.Fatalf("%s fell back from %+v to %+v", r.Source, refused, left)
		}
		if len(left) > 0 && !fell {
			t.Fatalf("%s does not tell of the fallback: %v", r.Source, r.Reasons)
		}
	}
}

// An endpoint that the locality's rate leaves nothing is the only one that is
// up: that is little capacity, but nobody drained it.
func TestALocalityWithoutARemainderIsServed(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Localities = []isobar.ServiceLocality{{Locality: loc("us/a"), MaxRate: 100, Endpoints: []isobar.Endpoint{
		{Address: "10.0.0.1:80", MaxRate: 100, Health: isobar.Unhealthy}, {Address: "10.0.0.2:80"},
	}}}
	p := ticks(t, top, 3, map[string]float64{"us/a": 50})
	if s := share(t, p, "us/a", "us/a"); s != 1 {
		t.Errorf("us/a keeps %v of its traffic, want all", s)
	}
}

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
			in.Previous, in.Load, in.Deviations = want, nil, nil
			if want, err = plan.Next(in); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			w.drawHealth(t)
			step(assign.Reapply)
			for range 11 { // until all have gone where they should
				w.drawRates(t)
				w.drawDeviations(t)
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
				t.Fatalf("from %q: %v, want %v; deviations %+v, reasons %+v", n, a.Shares, b.Shares, g.Deviations, a.Reasons)
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
		"two digits":         {window(63.96, 11.48, 52.48, 0), []string{"7% of the requests fail: most of them from us/a to us/b, where 11 of 64 requests/s do"}},
		"less than ten":      {window(7.123, 3.456, 3.667, 0), []string{"3.2% of the requests fail: most of them from us/a to us/b, where 3.5 of 7.1 requests/s do"}},
		"everything":         {window(100, 100, 0, 0), []string{"all requests from us/a fail: 100 requests/s get an error or no answer", "50% of the requests fail: most of them from us/a to us/b, where 100 of 100 requests/s do"}},
		"no answer":          {window(100, 0, 0, 0), []string{"all requests from us/a fail: 100 requests/s get an error or no answer"}},
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

var callZones = []string{"r0/z0", "r0/z1", "r1/z0", "r2/z0"}

// callWorld is a fleet of services that call each other at random.
type callWorld struct {
	rng  *rand.Rand
	top  *isobar.Topology
	plan *plan.Plan
	now  time.Time
}

func newCallWorld(t *rapid.T) *callWorld {
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("r0"), To: loc("r1"), MS: 80}, {From: loc("r0"), To: loc("r2"), MS: 30}})
	if err != nil {
		t.Fatal(err)
	}
	w := &callWorld{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3)), now: t0}
	w.top = &isobar.Topology{Network: network, Revision: 1}
	n := rapid.IntRange(2, 5).Draw(t, "services")
	for i := range n {
		s := isobar.Service{Name: fmt.Sprintf("s%d", (i*3)%n), MaxShed: float64(w.rng.IntN(2)) * 0.3}
		if slices.ContainsFunc(w.top.Services, func(o isobar.Service) bool { return o.Name == s.Name }) {
			s.Name = fmt.Sprintf("t%d", i)
		}
		for z, zone := range callZones {
			if w.rng.IntN(3) == 0 && z > 0 {
				continue
			}
			sl := isobar.ServiceLocality{Locality: loc(zone), Endpoints: endpoints(fmt.Sprintf("10.%d.%d.1:80", i, z), fmt.Sprintf("10.%d.%d.2:80", i, z))}
			if w.rng.IntN(4) > 0 {
				sl.MaxRate = 50 + 1000*w.rng.Float64()
			}
			s.Localities = append(s.Localities, sl)
		}
		for j := range w.top.Services {
			if w.rng.IntN(2) == 0 {
				w.top.Services[j].Calls = append(w.top.Services[j].Calls, isobar.Call{Service: s.Name, PerRequest: 0.1 + 2*w.rng.Float64()})
			}
		}
		w.top.Services = append(w.top.Services, s)
	}
	w.top.Normalize()
	return w
}

func (w *callWorld) input(trigger assign.Trigger, rates map[string]float64, table health.Table) plan.Input {
	w.now = w.now.Add(5 * time.Second)
	in := plan.Input{Now: w.now, Trigger: trigger, Topology: w.top, Health: table, Previous: w.plan, Version: 1}
	if w.plan != nil {
		in.Version = w.plan.Version + 1
	}
	if trigger == assign.Reapply {
		return in
	}
	in.Load = &load.Snapshot{At: w.now}
	for i := range w.top.Services {
		s := load.ServiceLoad{Name: w.top.Services[i].Name, Coverage: 1, Covered: true}
		for _, z := range callZones {
			if r := rates[s.Name+z]; r > 0 {
				s.Sources = append(s.Sources, load.SourceLoad{Source: loc(z), Demand: r, Raw: r, Nodes: 3, Clients: []load.ClientLoad{
					{Name: w.top.Services[w.rng.IntN(len(w.top.Services))].Name, Rate: r / 2}, {Name: "others", Rate: r / 2},
				}})
			}
		}
		in.Load.Services = append(in.Load.Services, s)
	}
	return in
}

// TestCallPlansRecover drives fleets of services that call each other through
// changes of demand and health: the same input gives the same plan, everything
// can be explained, and calm follows when nothing changes any more.
func TestCallPlansRecover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCallWorld(t)
		rates := map[string]float64{}
		table := health.Table{}
		step := func(trigger assign.Trigger) *plan.Plan {
			in := w.input(trigger, rates, table)
			p, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			again, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := asJSON(t, p.Services), asJSON(t, again.Services); a != b {
				t.Fatalf("the same input gave two plans:\n%s\n%s", a, b)
			}
			if p.LowerBound > p.Objective*(1+1e-9) || p.PlanGap < 0 || p.PlanGap > 1 || p.Gap > 0.01 {
				t.Fatalf("objective %v, bound %v, gap %v, plan gap %v", p.Objective, p.LowerBound, p.Gap, p.PlanGap)
			}
			for _, s := range p.Services {
				for _, z := range callZones {
					if _, err := p.Explain(s.Spec.Name, loc(z)); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.plan = p
			return p
		}
		for range 6 {
			for _, s := range w.top.Services {
				for _, z := range callZones {
					rates[s.Name+z] = max(0, 600*w.rng.Float64()-200)
				}
			}
			step(assign.Tick)
			var states []health.Override
			for _, s := range w.top.Services {
				for _, sl := range s.Localities {
					if w.rng.IntN(4) == 0 {
						states = append(states, health.Override{Key: health.Key{Service: s.Name, Address: sl.Endpoints[0].Address}, Status: isobar.Unhealthy})
					}
				}
			}
			table = health.NewTable(states)
			step(assign.Reapply)
		}
		for calm := range 6 {
			if p := step(assign.Tick); len(p.Violations) > 0 && calm >= 3 {
				t.Fatalf("after %d calm ticks: %+v", calm, p.Violations)
			}
		}
	})
}
