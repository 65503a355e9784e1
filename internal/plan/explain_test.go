package plan_test

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

func explain(t *testing.T, p *plan.Plan, source string) plan.Explanation {
	t.Helper()
	e, err := p.Explain("checkout", loc(source))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExplainNamesWhatBinds makes a plan for each kind of constraint and asks
// why.
func TestExplainNamesWhatBinds(t *testing.T) {
	down := func(p *plan.Plan, top *isobar.Topology, addresses ...string) *plan.Plan {
		var marks []health.Override
		for _, a := range addresses {
			marks = append(marks, health.Override{Key: health.Key{Service: "checkout", Address: a}, Status: isobar.Unhealthy})
		}
		next, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Health: health.NewTable(marks), Previous: p, Version: p.Version + 1})
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	tests := []struct {
		name string
		make func() *plan.Plan
		kind string
		at   string // the locality named
		says string // in the text
	}{
		{"none", func() *plan.Plan { return ticks(t, threeZones(t), 3, map[string]float64{"us/a": 100}) }, plan.BindingNone, "", "nearest"},
		{"ceiling", func() *plan.Plan {
			return ticks(t, threeZones(t), 12, map[string]float64{"us/a": 1900})
		}, plan.BindingCeiling, "us/a", "ceiling: 800 of 800"},
		{"queueing", func() *plan.Plan {
			top := threeZones(t)
			for i := range top.Services[0].Localities {
				top.Services[0].Localities[i].Concurrency = 2
			}
			return ticks(t, top, 12, map[string]float64{"us/a": 700})
		}, plan.BindingQueue, "", "queues"},
		{"health", func() *plan.Plan {
			top := threeZones(t)
			return down(ticks(t, top, 3, map[string]float64{"us/a": 100}), top, "10.0.0.1:80", "10.0.0.2:80")
		}, plan.BindingHealth, "us/a", "no healthy endpoint"},
		{"pacing", func() *plan.Plan {
			top := threeZones(t)
			p := ticks(t, top, 3, map[string]float64{"us/a": 100})
			in := plan.Input{Now: t0.Add(time.Hour), Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1}
			in.Load = demand(in.Now, "checkout", map[string]float64{"us/a": 2200})
			next, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			return next
		}, plan.BindingPacing, "", "the next decisions"},
		{"mode observe", func() *plan.Plan {
			top := threeZones(t)
			top.Services[0].Mode = isobar.ModeObserve
			return ticks(t, top, 3, map[string]float64{"us/a": 1900})
		}, plan.BindingMode, "", "observe"},
		{"mode bounded", func() *plan.Plan {
			top := threeZones(t)
			top.Services[0].Mode, top.Services[0].MaxShift = isobar.ModeBounded, 10
			return ticks(t, top, 12, map[string]float64{"us/a": 1900})
		}, plan.BindingMode, "", "10"},
		{"reach", func() *plan.Plan {
			top := threeZones(t)
			p := ticks(t, top, 3, map[string]float64{"us/a": 100})
			for range 3 {
				in := plan.Input{Now: p.Made.Add(5 * time.Second), Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1}
				in.Load = demand(in.Now, "checkout", map[string]float64{"us/a": 100})
				in.Deviations = []load.Deviations{{Service: "checkout", Barred: []load.Barred{{Source: loc("us/a"), Locality: loc("us/a"), Since: t0}}}}
				next, err := plan.Next(in)
				if err != nil {
					t.Fatal(err)
				}
				p = next
			}
			return p
		}, plan.BindingReach, "us/a", "cut off from this source"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := explain(t, tt.make(), "us/a")
			if e.Binding.Kind != tt.kind || !strings.Contains(e.Binding.Text, tt.says) {
				t.Errorf("binding %+v, want %s with %q; shares %+v, reasons %+v", e.Binding, tt.kind, tt.says, e.Localities, e.Reasons)
			}
			if tt.at != "" && (e.Binding.Locality == nil || *e.Binding.Locality != loc(tt.at)) {
				t.Errorf("binding names %v, want %s", e.Binding.Locality, tt.at)
			}
			if e.Summary == "" || !strings.Contains(e.Summary, e.Binding.Text) {
				t.Errorf("summary %q does not say why", e.Summary)
			}
		})
	}
}

// TestExplainShowsTheNumbers: inputs, costs, tiers and the runner-up are those
// of the plan.
func TestExplainShowsTheNumbers(t *testing.T) {
	p := ticks(t, threeZones(t), 12, map[string]float64{"us/a": 1200, "us/b": 100})
	e := explain(t, p, "us/a")
	if e.Demand.Rate != 1200 || e.Demand.Service != 1300 || !e.Demand.Measured || e.Demand.Nodes != 3 || e.Demand.ReportAge != 2 {
		t.Errorf("demand %+v", e.Demand)
	}
	if len(e.Localities) != 3 || e.Localities[0].Locality != loc("us/a") || e.Localities[2].Locality != loc("eu/a") {
		t.Fatalf("localities are not in the order of their distance: %+v", e.Localities)
	}
	sum, load := 0.0, 0.0
	for _, l := range e.Localities {
		sum += l.Published
		load += l.Load
		if math.Abs(l.Cost-l.Distance-l.Price) > 1e-9 || (l.Capacity > 0 && math.Abs(l.Utilization-(l.Load+l.UnmanagedLoad)/l.Capacity) > 1e-9) {
			t.Errorf("numbers of %s do not add up: %+v", l.Locality, l)
		}
	}
	if math.Abs(sum-1) > 1e-9 || math.Abs(load-1300) > 1 {
		t.Errorf("shares sum to %v, loads to %v", sum, load)
	}
	for kind, is := range map[string]dataplane.Prediction{"envoy": e.DataPlanes.Envoy, "grpc": e.DataPlanes.GRPC} {
		if is.PassPercent != 100 || len(is.Priorities) < 2 || is.Priorities[0].Load != 100 {
			t.Fatalf("%s: %+v", kind, is)
		}
		for _, l := range is.Priorities[0].Localities {
			for i := range e.Localities {
				if x := &e.Localities[i]; x.Locality == l.Locality && math.Abs(l.Share-x.Published) > 0.01 {
					t.Errorf("%s sends %v to %s, published is %v", kind, l.Share, l.Locality, x.Published)
				}
			}
		}
	}
	if e.Localities[0].Tier != 0 || e.Localities[2].Tier < 1 {
		t.Errorf("tiers %d and %d", e.Localities[0].Tier, e.Localities[2].Tier)
	}
	if e.RunnerUp == nil || e.RunnerUp.Locality != loc("eu/a") || e.RunnerUp.Worse < 50 {
		t.Errorf("runner-up %+v, want eu/a about 80 ms worse", e.RunnerUp)
	}
	if _, err := p.Explain("nothing", loc("us/a")); !errors.Is(err, isobar.ErrNotFound) {
		t.Errorf("explaining a service that does not exist: %v", err)
	}
	if far := explain(t, p, "mars/a"); len(far.Warnings) == 0 || far.Demand.Measured {
		t.Errorf("a source nobody knows, at assumed distances: %+v", far)
	}
}

// TestExplainOverflow: a locality above its ceiling is not said to be at it.
func TestExplainOverflow(t *testing.T) {
	e := explain(t, ticks(t, threeZones(t), 40, map[string]float64{"us/a": 3300}), "us/a")
	const want = "us/a is full: 1100 of 1100 requests/s, its ceiling of 80% raised by 37.5% because demand exceeds the ceilings"
	if e.Binding.Kind != plan.BindingCeiling || e.Binding.Text != want {
		t.Errorf("binding %+v, want %q", e.Binding, want)
	}
}

// TestExplainIdleSources: who sends nothing has nothing bound, and where it
// would go is said without contradiction.
func TestExplainIdleSources(t *testing.T) {
	for _, tt := range []struct {
		name string
		toB  float64 // ms from us/c
		want string
	}{
		{"equally far", 1, "nothing is sent from here; clients that come go 50% to us/a, 50% to us/b: everything goes to the nearest localities, which are equally far"},
		{"nearly", 1.5, "nothing is sent from here; clients that come go 50% to us/a, 50% to us/b: without demand, localities that cost nearly the same share by headroom"},
		{"nearest", 5, "nothing is sent from here; clients that come go 100% to us/a: everything goes to the nearest locality"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := threeZones(t)
			network, err := isobar.NewNetwork([]isobar.LatencyRule{
				{From: loc("us"), To: loc("eu"), MS: 80}, {From: loc("us/c"), To: loc("us/a"), MS: 1}, {From: loc("us/c"), To: loc("us/b"), MS: tt.toB},
			})
			if err != nil {
				t.Fatal(err)
			}
			top.Network = network
			e := explain(t, ticks(t, top, 3, map[string]float64{"us/a": 100, "us/b": 100}), "us/c")
			if e.Binding.Kind != plan.BindingNone || e.Summary != tt.want {
				t.Errorf("binding %s, summary %q, want %q", e.Binding.Kind, e.Summary, tt.want)
			}
		})
	}
}

// TestExplainFullWithLoss: a locality that is full because endpoints are lost is
// a matter of health, and the numbers stand beside it.
func TestExplainFullWithLoss(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Localities[1].Endpoints[0].Health = isobar.Unhealthy // us/a; the list is sorted
	e := explain(t, ticks(t, top, 30, map[string]float64{"us/a": 1500}), "us/a")
	const want = "us/a is at its ceiling: 400 of 400 requests/s, with 1 of 2 endpoints healthy"
	if e.Binding.Kind != plan.BindingHealth || e.Binding.Text != want {
		t.Errorf("binding %+v, want %q", e.Binding, want)
	}
}

// TestExplainCountsDraining asserts that explain counts endpoints that drain separately from those that fail.
func TestExplainCountsDraining(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Localities[1].Endpoints[0].Health = isobar.Draining  // us/a; the list is sorted
	top.Services[0].Localities[2].Endpoints[0].Health = isobar.Unhealthy // us/b
	e := explain(t, ticks(t, top, 3, map[string]float64{"us/a": 100}), "us/a")
	got := map[isobar.Locality][2]int{}
	for _, l := range e.Localities {
		got[l.Locality] = [2]int{l.Healthy, l.Draining}
	}
	if want := map[isobar.Locality][2]int{loc("us/a"): {1, 1}, loc("us/b"): {1, 0}, loc("eu/a"): {2, 0}}; !maps.Equal(got, want) {
		t.Errorf("healthy and draining endpoints %v, want %v", got, want)
	}
}

// TestExplainNamesSmallShares: a share of 0.5% must not read as 0%, so where one is below 10%
// all have a digit after the point. They add up to 100%.
func TestExplainNamesSmallShares(t *testing.T) {
	top := threeZones(t)
	p := ticks(t, top, 12, map[string]float64{"us/a": 1900})
	var text string
	for range 5 {
		in := plan.Input{Now: p.Made.Add(5 * time.Second), Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1}
		in.Load = demand(in.Now, "checkout", map[string]float64{"us/a": 100})
		p = decided(t, in)
		text = explain(t, p, "us/a").Summary
	}
	if !strings.Contains(text, "go 92.1% to us/a, 5.7% to us/b, 2.2% to eu/a") {
		t.Errorf("summary %q, want shares with a digit after the point, 100%% together", text)
	}
}

// TestDeviationsInWords: what operators read of sources and of single clients that do not
// follow their weights.
func TestDeviationsInWords(t *testing.T) {
	a, b, c := isobar.MustLocality("us-east/a"), isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	one := load.ClientDeviation{Node: "n1", Cluster: "web", Rate: 100, Points: 92, To: isobar.MustLocality("eu/a"), ToShare: 0.95}
	two := load.ClientDeviation{Node: "n2", Cluster: "web", Rate: 10, Points: 40}
	got := plan.DeviationsOf(&load.Deviations{
		Deviating: []load.Deviation{{Source: b, Points: 30, Cause: load.CauseZoneAware, Clients: []load.ClientDeviation{one, two}, Others: 2}},
		Individual: []load.Deviation{
			{Source: a, Points: 92, Cause: load.CauseUnknown, Clients: []load.ClientDeviation{one}},
			{Source: c, Points: 92, Cause: load.CauseUnknown, Clients: []load.ClientDeviation{one, two}},
		},
	})
	want := []struct {
		source isobar.Locality
		only   bool
		text   string
	}{
		{a, true, `client "n1" (web) does not follow its weights: at least 92% of its requests go elsewhere than planned; it sends 95% to eu/a`},
		{b, false, `clients "n1" (web), "n2" (web) and 2 more do not follow their weights: at least 30% of the requests of their locality go elsewhere than planned; likely cause: zone-aware routing`},
		{c, true, `clients "n1" (web), "n2" (web) do not follow their weights: at least 92% of the requests of the first go elsewhere than planned`},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if got[i].Source != w.source || got[i].ClientsOnly != w.only || got[i].String() != w.text {
			t.Errorf("%s, clients only %t: %s\nwant %s, %t: %s", got[i].Source, got[i].ClientsOnly, got[i].String(), w.source, w.only, w.text)
		}
	}
}

// TestRisksOfAChange: capacity that is removed from under the load of today is told
// first, with the figures; more capacity is no risk.
func TestRisksOfAChange(t *testing.T) {
	a, b := loc("us/a"), loc("us/b")
	topology := func(revision uint64, rateA, rateB float64) *isobar.Topology {
		network, err := isobar.NewNetwork(nil)
		if err != nil {
			t.Fatal(err)
		}
		top := &isobar.Topology{Network: network, Revision: revision, Services: []isobar.Service{{Name: "checkout", Localities: []isobar.ServiceLocality{
			{Locality: a, MaxRate: rateA, Concurrency: 20, Endpoints: []isobar.Endpoint{{Address: "10.0.0.1:80"}}},
			{Locality: b, MaxRate: rateB, Concurrency: 20, Endpoints: []isobar.Endpoint{{Address: "10.0.1.1:80"}}},
		}}}}
		top.Normalize()
		return top
	}
	snap := &load.Snapshot{At: t0, Services: []load.ServiceLoad{{Name: "checkout", Coverage: 1, Covered: true, Sources: []load.SourceLoad{
		{Source: a, Demand: 600, Raw: 600, Nodes: 3}, {Source: b, Demand: 600, Raw: 600, Nodes: 3},
	}}}}
	var before *plan.Plan
	for tick := range 20 {
		in := plan.Input{Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: topology(1, 1000, 1000), Load: snap, Previous: before, Version: uint64(tick + 1)}
		var err error
		if before, err = plan.Next(in); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name         string
		rateA, rateB float64
		want         []string // parts of the risks
	}{
		{"more", 2000, 1000, nil},
		{"too little for all", 100, 1000, []string{"checkout: utilization of us/a is ", "after the first tick"}},
		{"too little anywhere", 100, 100, []string{"checkout: utilization of us/a is 600.0% after the first tick and later, above"}},
		{"nothing changes", 1000, 1000, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := plan.NewPreview(&plan.Turn{
				Now: t0.Add(time.Hour), Interval: 5 * time.Second, Previous: before, Topology: topology(2, tt.rateA, tt.rateB), Version: before.Version + 1,
			}, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for more := true; more && err == nil; {
				more, err = p.Step()
			}
			if err != nil {
				t.Fatal(err)
			}
			d := p.Difference()
			var told []string
			for _, r := range d.Risks {
				told = append(told, r.Text)
			}
			text := strings.Join(told, "\n")
			if (len(told) > 0) != (len(tt.want) > 0) {
				t.Errorf("told %q", text)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %q", want, text)
				}
			}
		})
	}
}

// TestExplainNamesAnEarlierDecision: what health changes at once leaves prices and targets as they
// were decided before, until the next decision.
func TestExplainNamesAnEarlierDecision(t *testing.T) {
	top := threeZones(t)
	decided := ticks(t, top, 3, map[string]float64{"us/a": 900})
	if e := explain(t, decided, "us/a"); e.Earlier != "" {
		t.Errorf("%q names an earlier decision, and this one is of now", e.Earlier)
	}
	var down []health.Override
	for i := range top.Services[0].Localities[0].Endpoints {
		down = append(down, health.Override{Key: health.Key{Service: "checkout", Address: top.Services[0].Localities[0].Endpoints[i].Address}, Status: isobar.Unhealthy})
	}
	carried, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Health: health.NewTable(down), Previous: decided, Version: decided.Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	const want = "prices, costs and targets are of the last decision, for which eu/a had a capacity of 1000 requests/s; it has 0 now, and the next decision uses that"
	if e := explain(t, carried, "us/a"); e.Earlier != want {
		t.Errorf("%q, want %q", e.Earlier, want)
	}
}
