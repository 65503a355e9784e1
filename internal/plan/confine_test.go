package plan_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// usDown says that endpoints of the us are unhealthy.
func usDown(addresses ...string) health.Table {
	var set []health.Override
	for _, a := range addresses {
		set = append(set, health.Override{Key: health.Key{Service: "checkout", Address: a}, Status: isobar.Unhealthy})
	}
	return health.NewTable(set)
}

var allUS = []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.1.1:80", "10.0.1.2:80"}

// reapplied carries a plan over to other health.
func reapplied(t *testing.T, top *isobar.Topology, p *plan.Plan, table health.Table) *plan.Plan {
	t.Helper()
	next, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Health: table, Previous: p, Version: p.Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(next.Violations) > 0 {
		t.Errorf("violations: %+v", next.Violations)
	}
	return next
}

func regions(a *isobar.Assignment) []string {
	var out []string
	for _, tier := range a.Priorities {
		for _, lw := range tier {
			if r := lw.Locality.Region; !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	slices.Sort(out)
	return out
}

// With isolation strict nothing leaves the region: neither what does not fit,
// nor failover tiers, nor when nothing in it is healthy.
func TestStrictIsolation(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Isolation = isobar.IsolationStrict
	p := ticks(t, top, 12, map[string]float64{"us/a": 2400, "eu/a": 100})
	wantShares(t, p, "us/a", [3]float64{0.5, 0.5, 0})
	wantShares(t, p, "eu/a", [3]float64{0, 0, 1})
	for from, want := range map[string]string{"us/a": "us", "us/c": "us", "eu/b": "eu"} {
		if got := regions(p.Assignment("checkout", loc(from))); !slices.Equal(got, []string{want}) {
			t.Errorf("clients in %s get endpoints in %v", from, got)
		}
	}
	if a := p.Assignment("checkout", loc("ap/a")); len(a.Priorities) != 0 {
		t.Errorf("clients in a region without the service get endpoints in %v", regions(a))
	}
	e, err := p.Explain("checkout", loc("ap/a"))
	if err != nil || e.Binding.Kind != plan.BindingRule || !strings.HasPrefix(e.Summary, "clients get no endpoints") {
		t.Errorf("%v: %q, %q", err, e.Binding.Kind, e.Summary)
	}

	dead := reapplied(t, top, p, usDown(allUS...))
	a := dead.Assignment("checkout", loc("us/a"))
	if got := regions(a); !slices.Equal(got, []string{"us"}) || len(a.Priorities[0]) != 2 {
		t.Errorf("with nothing healthy, clients in the us get %v", got)
	}
	for _, lw := range a.Priorities[0] {
		if lw.Usable() != 2 {
			t.Errorf("%s: %d endpoints are open to clients, want 2: the region fails open", lw.Locality, lw.Usable())
		}
	}
	wantShares(t, dead, "eu/a", [3]float64{0, 0, 1})
	if got := dead.Assignment("checkout", loc("eu/a")); got != p.Assignment("checkout", loc("eu/a")) {
		t.Error("the answer of another region changed")
	}
	again := reapplied(t, top, dead, usDown(allUS...))
	if again.Assignment("checkout", loc("us/a")) != a {
		t.Error("an answer that did not change is another one")
	}
}

// With isolation nearest a full region overflows in place; only when nothing in
// it is healthy, traffic goes to the next.
func TestNearestIsolation(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Isolation = isobar.IsolationNearest
	rates := map[string]float64{"us/a": 2400, "eu/a": 100}
	p := ticks(t, top, 12, rates)
	wantShares(t, p, "us/a", [3]float64{0.5, 0.5, 0})
	if got := regions(p.Assignment("checkout", loc("us/a"))); !slices.Equal(got, []string{"eu", "us"}) {
		t.Errorf("clients in the us have failover tiers in %v", got)
	}
	wantShares(t, p, "ap/a", [3]float64{0, 0, 1}) // the same distance: what has headroom
	dead := reapplied(t, top, p, usDown(allUS...))
	wantShares(t, dead, "us/a", [3]float64{0, 0, 1})
}

// Residency holds for shares and tiers, and for clients who come later.
func TestResidency(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Residency = []isobar.Residency{{From: glob("us"), Allow: []isobar.LocalityGlob{glob("us/a"), glob("eu-*")}}}
	p := ticks(t, top, 12, map[string]float64{"us/b": 1500, "eu/a": 100})
	wantShares(t, p, "us/b", [3]float64{1, 0, 0})
	a := p.Assignment("checkout", loc("us/b"))
	if len(a.Priorities) != 1 || len(a.Priorities[0]) != 1 {
		t.Errorf("tiers %v", a.Priorities)
	}
	wantShares(t, p, "us/z", [3]float64{1, 0, 0})
	e, err := p.Explain("checkout", loc("us/b"))
	if err != nil || e.Binding.Kind != plan.BindingRule {
		t.Errorf("%v: binds %+v", err, e.Binding)
	}
	// The rule comes when clients are elsewhere: it is kept at once.
	free := threeZones(t)
	q := ticks(t, free, 3, map[string]float64{"us/b": 500})
	if s := share(t, q, "us/b", "us/b"); s < 0.8 {
		t.Errorf("us/b keeps %.2f", s)
	}
	wantShares(t, reapplied(t, top, q, health.Table{}), "us/b", [3]float64{1, 0, 0})
}

// A price counts as distance, for what is decided and for what explain tells.
func TestEgressPrices(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 1000}
	if s := share(t, ticks(t, top, 12, rates), "us/a", "us/b"); s < 0.2 {
		t.Fatalf("without a price us/a sends %.2f to us/b", s)
	}
	network, err := top.Network.WithEgress([]isobar.EgressRule{{From: loc("us/a"), To: loc("us/b"), Price: 500}})
	if err != nil {
		t.Fatal(err)
	}
	top.Network = network
	p := ticks(t, top, 12, rates)
	if s := share(t, p, "us/a", "us/b"); s > 0 {
		t.Errorf("at 500 ms us/a sends %.2f to us/b, want all that does not fit in the eu", s)
	}
	e, err := p.Explain("checkout", loc("us/a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range e.Localities {
		if l.Locality == loc("us/b") && (l.Egress != 500 || math.Abs(l.Distance-501) > 1e-9) {
			t.Errorf("us/b is %v ms away, %v of it egress", l.Distance, l.Egress)
		}
	}
	if back := p.Topology.Network.Price(loc("us/b"), loc("us/a")); back != 0 {
		t.Errorf("the way back costs %v", back)
	}
}
