package plan_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// callers is a fleet in which checkout calls pay. pay has so much headroom in us/a,
// and enough in eu/a.
func callers(t *testing.T, perRequest, nearHeadroom float64) *isobar.Topology {
	t.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(l string, rate float64, address string) isobar.ServiceLocality {
		return isobar.ServiceLocality{Locality: loc(l), MaxRate: rate, Endpoints: endpoints(address)}
	}
	top := &isobar.Topology{Network: network, Revision: 1, Services: []isobar.Service{
		{
			Name:       "checkout",
			Localities: []isobar.ServiceLocality{at("us/a", 2000, "10.0.0.1:80"), at("eu/a", 2000, "10.1.0.1:80")},
		},
		{
			Name:       "pay",
			Localities: []isobar.ServiceLocality{at("us/a", nearHeadroom/0.8, "10.0.1.1:80"), at("eu/a", 4000, "10.1.1.1:80")},
		},
	}}
	if perRequest > 0 {
		top.Services[0].Calls = []isobar.Call{{Service: "pay", PerRequest: perRequest}}
	}
	top.Normalize()
	return top
}

// callFleet is what clients do with the plans: customers in us/a send to
// checkout, whose instances send to pay, in the ratio that really holds.
type callFleet struct {
	top    *isobar.Topology
	ratio  float64 // calls per request
	others float64 // requests/s to pay from others in us/a
	demand float64 // requests/s to checkout from us/a
	silent bool    // nobody reports on checkout
	plan   *plan.Plan
}

// plannedLoad returns the load of each site from a service's shares and its sources' demand.
func plannedLoad(p *plan.Plan, service string, demand map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for from, rate := range demand {
		for _, to := range []string{"us/a", "eu/a"} {
			share := 0.0
			if from == to {
				share = 1
			}
			if p != nil {
				share = p.Assignment(service, loc(from)).Share(loc(to))
			}
			out[to] += rate * share
		}
	}
	return out
}

// tick reports what happened under the last plan and makes the next.
func (f *callFleet) tick(t *testing.T) *plan.Plan {
	t.Helper()
	in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: f.top, Previous: f.plan, Version: 1}
	if f.plan != nil {
		in.Now, in.Version = f.plan.Made.Add(5*time.Second), f.plan.Version+1
	}
	served := plannedLoad(f.plan, "checkout", map[string]float64{"us/a": f.demand})
	in.Load = &load.Snapshot{At: in.Now}
	if !f.silent {
		in.Load.Services = append(in.Load.Services, serviceLoad("checkout", served, map[string][]load.ClientLoad{
			"us/a": {{Name: "customers", Rate: f.demand}},
		}))
	}
	calls := map[string][]load.ClientLoad{}
	demand := map[string]float64{}
	for l, y := range served {
		calls[l] = []load.ClientLoad{{Name: "checkout", Rate: f.ratio * y}}
		demand[l] = f.ratio * y
	}
	if f.others > 0 {
		calls["us/a"] = append(calls["us/a"], load.ClientLoad{Name: "others", Rate: f.others})
		demand["us/a"] += f.others
	}
	in.Load.Services = append(in.Load.Services, serviceLoad("pay", plannedLoad(f.plan, "pay", demand), calls))
	p, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Violations) > 0 {
		t.Fatalf("violations: %+v", p.Violations)
	}
	f.plan = p
	return p
}

func serviceLoad(name string, landed map[string]float64, clients map[string][]load.ClientLoad) load.ServiceLoad {
	s := load.ServiceLoad{Name: name, Coverage: 1, Covered: true}
	for _, l := range []string{"eu/a", "us/a"} {
		sum := 0.0
		for _, c := range clients[l] {
			sum += c.Rate
		}
		if sum > 0 {
			s.Sources = append(s.Sources, load.SourceLoad{Source: loc(l), Demand: sum, Raw: sum, Nodes: 3, Clients: clients[l]})
		}
		s.Sites = append(s.Sites, load.SiteLoad{Locality: loc(l), Issued: landed[l]})
	}
	return s
}

func (f *callFleet) settle(t *testing.T) *plan.Plan {
	t.Helper()
	for range 20 {
		f.tick(t)
	}
	return f.plan
}

func published(p *plan.Plan, service, from, to string) float64 {
	return p.Assignment(service, loc(from)).Share(loc(to))
}

// With two calls per request a request goes across once, rather than its calls;
// with half a call, the call does. Both end under the ceilings.
func TestCallsMoveAtTheCheapestHop(t *testing.T) {
	for _, test := range []struct {
		name              string
		ratio, headroom   float64
		checkout, payNear float64 // shares that stay in us/a
	}{
		{"request", 2, 800, 0.4, 1},
		{"call", 0.5, 200, 1, 0.4},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &callFleet{top: callers(t, test.ratio, test.headroom), ratio: test.ratio, demand: 1000}
			p := f.settle(t)
			if s := published(p, "checkout", "us/a", "us/a"); math.Abs(s-test.checkout) > 0.03 {
				t.Errorf("checkout keeps %.3f in us/a, want %.2f", s, test.checkout)
			}
			if s := published(p, "pay", "us/a", "us/a"); math.Abs(s-test.payNear) > 0.03 {
				t.Errorf("pay keeps %.3f of calls from us/a there, want %.2f", s, test.payNear)
			}
			if p.Gap > 0.005 || p.PlanGap > 0.05 {
				t.Errorf("gap %v, plan gap %v", p.Gap, p.PlanGap)
			}
			pay, _ := p.Service("pay")
			if !pay.Joint || !slices.Equal(pay.Callers, []string{"checkout"}) {
				t.Errorf("joint %v, callers %v", pay.Joint, pay.Callers)
			}
			// Nothing changes any more: neither do the weights.
			if again := f.tick(t); math.Abs(published(again, "checkout", "us/a", "us/a")-published(p, "checkout", "us/a", "us/a")) > 1e-9 {
				t.Error("weights move though nothing changed")
			}
		})
	}
}

// What was measured from a caller is not counted beside what is computed; what
// comes from others is.
func TestCallsAreCountedOnce(t *testing.T) {
	f := &callFleet{top: callers(t, 2, 4000), ratio: 2, demand: 1000, others: 100}
	p := f.settle(t)
	pay, _ := p.Service("pay")
	if d := pay.Result.Source(loc("us/a")).Demand; math.Abs(d-2100) > 1 {
		t.Errorf("pay is planned for %.0f requests/s from us/a, want 2 for each of 1000 and 100 of others", d)
	}
	// A ratio that does not hold is told, and the configured one is used.
	f.ratio = 1
	p = f.settle(t)
	pay, _ = p.Service("pay")
	if d := pay.Result.Source(loc("us/a")).Demand; math.Abs(d-2100) > 1 {
		t.Errorf("pay is planned for %.0f requests/s", d)
	}
	e, err := p.Explain("pay", loc("us/a"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "checkout makes 1 calls per request, not 2") }) {
		t.Errorf("no warning of the ratio in %q", e.Warnings)
	}
}

// A caller that nobody reports on tells nothing about its calls.
func TestSilentCallersKeepWhatIsMeasured(t *testing.T) {
	f := &callFleet{top: callers(t, 2, 4000), ratio: 2, demand: 1000, silent: true}
	p := f.settle(t)
	pay, _ := p.Service("pay")
	if d := pay.Result.Source(loc("us/a")).Demand; math.Abs(d-2000) > 1 || pay.Joint {
		t.Errorf("pay is planned for %.0f requests/s from us/a, want the 2000 that are measured", d)
	}
	e, err := p.Explain("pay", loc("us/a"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "no demand of the caller is reported") }) {
		t.Errorf("not told in %q", e.Warnings)
	}
}

// Calls that are only seen are suggested, and change nothing.
func TestCallsThatAreSeenAreSuggested(t *testing.T) {
	f := &callFleet{top: callers(t, 0, 800), ratio: 2, demand: 1000}
	p := f.settle(t)
	if s := published(p, "checkout", "us/a", "us/a"); s < 0.99 {
		t.Errorf("checkout keeps %.3f in us/a, want all", s)
	}
	e, err := p.Explain("pay", loc("us/a"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "calls: [{service: pay, per_request: 2}]") }) {
		t.Errorf("no suggestion in %q", e.Warnings)
	}
	if len(e.Calls) != 1 || math.Abs(e.Calls[0].Measured-2) > 0.01 || e.Calls[0].Used {
		t.Errorf("calls %+v", e.Calls)
	}
}

// The price of a caller's locality names what its calls cost from there.
func TestExplainNamesTheCostOfCalls(t *testing.T) {
	f := &callFleet{top: callers(t, 2, 800), ratio: 2, demand: 1000}
	p := f.settle(t)
	e, err := p.Explain("checkout", loc("us/a"))
	if err != nil {
		t.Fatal(err)
	}
	near, far := e.Localities[0], e.Localities[1]
	if near.Calls-far.Calls < 70 || near.Price < near.Calls {
		t.Errorf("calls cost %.1f ms of %.1f near and %.1f of %.1f far: want about the way across more", near.Calls, near.Price, far.Calls, far.Price)
	}
}

// A reapplication keeps the demand that callers make.
func TestReapplyKeepsCalls(t *testing.T) {
	f := &callFleet{top: callers(t, 2, 800), ratio: 2, demand: 1000}
	before := f.settle(t)
	top := *f.top
	top.Services = slices.Clone(top.Services)
	top.Services[1].Localities = slices.Clone(top.Services[1].Localities)
	top.Services[1].Localities[0].MaxRate = 3900
	p, err := plan.Next(plan.Input{
		Now: before.Made.Add(time.Second), Trigger: assign.Reapply, Topology: &top, Previous: before, Version: before.Version + 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"us/a", "eu/a"} {
		a, _ := before.Service("pay")
		b, _ := p.Service("pay")
		if x, y := a.Result.Source(loc(at)), b.Result.Source(loc(at)); math.Abs(x.Demand-y.Demand) > 1e-9 {
			t.Errorf("demand of %s was %v and is %v", at, x.Demand, y.Demand)
		}
		if !b.Joint || len(b.Callers) != 1 {
			t.Errorf("joint %v, callers %v", b.Joint, b.Callers)
		}
	}
}

// A circle is refused by the configuration; should one get through, each
// service is planned from what is measured.
func TestCallsInACircle(t *testing.T) {
	f := &callFleet{top: callers(t, 2, 4000), ratio: 2, demand: 1000}
	f.top.Services[1].Calls = []isobar.Call{{Service: "checkout", PerRequest: 1}}
	p := f.settle(t)
	pay, _ := p.Service("pay")
	if d := pay.Result.Source(loc("us/a")).Demand; math.Abs(d-2000) > 1 || !pay.Alone {
		t.Errorf("demand %v, alone %v", d, pay.Alone)
	}
}
