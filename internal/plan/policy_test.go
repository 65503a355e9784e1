package plan_test

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// underPolicy is threeZones under another policy.
func underPolicy(t *testing.T, p isobar.Policy) *isobar.Topology {
	t.Helper()
	top := threeZones(t)
	top.Services[0].Policy = p
	return top
}

// shares lists the shares of a source in the order of names.
func sharesOf(t *testing.T, p *plan.Plan, source string, names ...string) []float64 {
	t.Helper()
	out := make([]float64, len(names))
	for i, n := range names {
		out[i] = share(t, p, source, n)
	}
	return out
}

func wantShares(t *testing.T, p *plan.Plan, source string, want [3]float64) {
	t.Helper()
	got := sharesOf(t, p, source, "us/a", "us/b", "eu/a")
	for i := range want {
		if math.Abs(got[i]-want[i]) > 0.011 {
			t.Errorf("%s sends %.3f, want %.3f", source, got, want)
			return
		}
	}
}

// Each policy does what its name says; a source that only watches, or that
// comes between two plans, is told the same as those that send.
func TestPolicies(t *testing.T) {
	for _, test := range []struct {
		policy  isobar.Policy
		rates   map[string]float64
		usA     [3]float64 // of us/a to us/a, us/b, eu/a
		watcher [3]float64 // of us/b, which sends nothing
		dearer  bool       // than the optimum, by at least a millisecond
	}{
		{isobar.PolicyWaterfallByRegion, map[string]float64{"us/a": 600}, [3]float64{0.5, 0.5, 0}, [3]float64{0, 1, 0}, false},
		{isobar.PolicyWaterfallByRegion, map[string]float64{"us/a": 2000}, [3]float64{0.4, 0.4, 0.2}, [3]float64{0, 0.8, 0.2}, false},
		{isobar.PolicyWaterfallByZone, map[string]float64{"us/a": 1000}, [3]float64{0.8, 0.2, 0}, [3]float64{0, 1, 0}, false},
		{isobar.PolicySprayToRegion, map[string]float64{"us/a": 400}, [3]float64{0.5, 0.5, 0}, [3]float64{0.5, 0.5, 0}, false},
		{isobar.PolicySprayToWorld, map[string]float64{"us/a": 300}, [3]float64{1. / 3, 1. / 3, 1. / 3}, [3]float64{1. / 3, 1. / 3, 1. / 3}, true},
		{isobar.PolicyNearest, map[string]float64{"us/a": 1500}, [3]float64{1, 0, 0}, [3]float64{0, 1, 0}, true},
		{isobar.PolicyFixed, map[string]float64{"us/a": 300}, [3]float64{0.75, 0, 0.25}, [3]float64{0.75, 0, 0.25}, true},
	} {
		t.Run(test.policy.String(), func(t *testing.T) {
			top := underPolicy(t, test.policy)
			if test.policy == isobar.PolicyFixed {
				top.Services[0].Localities[0].Weight, top.Services[0].Localities[1].Weight = 1, 3 // eu/a, us/a
			}
			p := ticks(t, top, 12, test.rates)
			wantShares(t, p, "us/a", test.usA)
			wantShares(t, p, "us/b", test.watcher)
			p = watched(t, top, p, test.rates, "us/b")
			wantShares(t, p, "us/b", test.watcher)

			s, _ := p.Service("checkout")
			if s.PolicyGap < s.Solution.Gap || (test.dearer && s.PolicyMS < 1) {
				t.Errorf("the policy costs %.4f above the bound and %.3f ms above the solver's, whose gap is %.4f", s.PolicyGap, s.PolicyMS, s.Solution.Gap)
			}
			e, err := p.Explain("checkout", loc("us/a"))
			if err != nil {
				t.Fatal(err)
			}
			if e.Policy != test.policy || e.PolicyGap != s.PolicyGap {
				t.Errorf("explain tells of policy %s and %.4f", e.Policy, e.PolicyGap)
			}
			if test.dearer && e.Binding.Kind != plan.BindingPolicy {
				t.Errorf("binds: %s: %s", e.Binding.Kind, e.Binding.Text)
			}
		})
	}
}

// watched makes the plan after p, which a further source watches.
func watched(t *testing.T, top *isobar.Topology, p *plan.Plan, rates map[string]float64, source string) *plan.Plan {
	t.Helper()
	now := p.Made.Add(5 * time.Second)
	next, err := plan.Next(plan.Input{
		Now: now, Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1, Load: demand(now, "checkout", rates),
		Subscribed: []load.Subscription{{Service: "checkout", Source: loc(source)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(next.Violations) > 0 {
		t.Fatalf("violations: %+v", next.Violations)
	}
	return next
}

// A locality that fails gives its part to the others at once, as the policy
// says; ceilings do not keep anybody away where the policy ignores them.
func TestPoliciesFailOver(t *testing.T) {
	dead := health.NewTable([]health.Override{
		{Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Status: isobar.Unhealthy},
		{Key: health.Key{Service: "checkout", Address: "10.0.0.2:80"}, Status: isobar.Unhealthy},
	})
	for _, test := range []struct {
		policy isobar.Policy
		want   [3]float64
	}{
		{isobar.PolicyNearest, [3]float64{0, 1, 0}},
		{isobar.PolicyFixed, [3]float64{0, 0.2, 0.8}},
		{isobar.PolicyWaterfallByRegion, [3]float64{0, 800. / 1200, 400. / 1200}},
	} {
		t.Run(test.policy.String(), func(t *testing.T) {
			top := underPolicy(t, test.policy)
			if test.policy == isobar.PolicyFixed {
				for i, w := range []float64{4, 5, 1} { // eu/a, us/a, us/b
					top.Services[0].Localities[i].Weight = w
				}
			}
			p := ticks(t, top, 12, map[string]float64{"us/a": 1200})
			next, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Health: dead, Previous: p, Version: p.Version + 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(next.Violations) > 0 {
				t.Errorf("violations: %+v", next.Violations)
			}
			wantShares(t, next, "us/a", test.want)
		})
	}
}

// Policies that do not look at load need no demand to know where it should go,
// nor declared capacity.
func TestFixedWeightsWithoutDemand(t *testing.T) {
	top := underPolicy(t, isobar.PolicyFixed)
	for i, w := range []float64{4, 5, 1} { // eu/a, us/a, us/b
		top.Services[0].Localities[i].Weight, top.Services[0].Localities[i].MaxRate = w, 0
	}
	p := ticks(t, top, 1, nil)
	wantShares(t, p, "us/b", [3]float64{0.5, 0.1, 0.4})
	p = watched(t, top, p, nil, "us/b")
	wantShares(t, p, "us/b", [3]float64{0.5, 0.1, 0.4})
	p = watched(t, top, p, map[string]float64{"us/b": 100}, "us/b")
	wantShares(t, p, "us/b", [3]float64{0.5, 0.1, 0.4})
}

// Modes stay what they are: the policy is only what the decision is.
func TestPoliciesUnderModes(t *testing.T) {
	top := underPolicy(t, isobar.PolicySprayToWorld)
	top.Services[0].Mode = isobar.ModeObserve
	wantShares(t, ticks(t, top, 12, map[string]float64{"us/a": 300}), "us/a", [3]float64{1, 0, 0})
	top.Services[0].Mode, top.Services[0].MaxShift = isobar.ModeBounded, 20
	wantShares(t, ticks(t, top, 12, map[string]float64{"us/a": 300}), "us/a", [3]float64{0.8, 0.1, 0.1})
}

// Preferred localities are filled before nearer ones, whatever the policy; only
// what does not fit goes elsewhere.
func TestPreferredLocalities(t *testing.T) {
	for _, test := range []struct {
		policy isobar.Policy
		rate   float64
		want   [3]float64
	}{
		{isobar.PolicyLatency, 300, [3]float64{0, 0, 1}},
		{isobar.PolicyLatency, 1600, [3]float64{0.5, 0, 0.5}},
		{isobar.PolicyWaterfallByZone, 1600, [3]float64{0.5, 0, 0.5}},
		{isobar.PolicyNearest, 1600, [3]float64{0, 0, 1}},
	} {
		top := underPolicy(t, test.policy)
		top.Services[0].Localities[0].Preferred = true // eu/a
		p := ticks(t, top, 15, map[string]float64{"us/a": test.rate})
		got := sharesOf(t, p, "us/a", "us/a", "us/b", "eu/a")
		// Latency shares what does not fit between two near zones.
		if test.policy == isobar.PolicyLatency && test.rate > 800 {
			got = []float64{got[0] + got[1], 0, got[2]}
		}
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 0.011 {
				t.Errorf("%s, %v requests/s: %.3f, want %.3f", test.policy, test.rate, got, test.want)
				break
			}
		}
		if test.want[2] == 1 { // the next source has headroom there, too
			wantShares(t, p, "us/b", [3]float64{0, 0, 1})
		}
		s, _ := p.Service("checkout")
		if test.rate == 300 && s.PolicyMS < 70 {
			t.Errorf("preferring the eu costs %.2f ms, want about the way there", s.PolicyMS)
		}
		// Nothing preferred is healthy: as if nothing were preferred.
		dead := reapplied(t, top, p, usDown("10.1.0.1:80", "10.1.0.2:80"))
		if got := share(t, dead, "us/a", "eu/a"); got != 0 {
			t.Errorf("%s: %.2f stay in the eu, which is down", test.policy, got)
		}
	}
}

// Who may not use any preferred locality says nothing about whether these are
// full: the others go on sharing them by their queues.
func TestPreferredLocalitiesThatSomeMayNotUse(t *testing.T) {
	top := underPolicy(t, isobar.PolicyLatency)
	top.Services[0].Isolation = isobar.IsolationStrict
	top.Services[0].Localities[1].Preferred, top.Services[0].Localities[2].Preferred = true, true // us/a, us/b
	for _, eu := range []float64{0, 0.001, 50, 900} {                                             // 900 is more than eu/a can take
		p := ticks(t, top, 15, map[string]float64{"us/a": 1000, "eu/a": eu})
		wantShares(t, p, "us/a", [3]float64{0.528, 0.472, 0})
		wantShares(t, p, "eu/a", [3]float64{0, 0, 1})
	}
	// And they are placed as well themselves.
	top = underPolicy(t, isobar.PolicyLatency)
	top.Services[0].Isolation = isobar.IsolationStrict
	top.Services[0].Localities[0].Preferred = true // eu/a
	wantShares(t, ticks(t, top, 15, map[string]float64{"us/a": 1000, "eu/a": 50}), "us/a", [3]float64{0.528, 0.472, 0})
}

// Policies other than latency and spray-to-world let a locality keep its share
// down to the failover threshold, and a part in proportion below it.
func TestFailoverThreshold(t *testing.T) {
	half := usDown("10.0.0.1:80")
	for _, test := range []struct {
		policy    isobar.Policy
		threshold float64
		want      [3]float64
	}{
		{isobar.PolicyNearest, 0.5, [3]float64{1, 0, 0}},
		{isobar.PolicyNearest, 0, [3]float64{0.5 / 0.7, 0.2 / 0.7, 0}},
		{isobar.PolicyFixed, 1, [3]float64{1. / 3, 2. / 3, 0}},
		{isobar.PolicyWaterfallByZone, 0.5, [3]float64{0.8, 0.2, 0}}, // its ceiling
		{isobar.PolicyWaterfallByZone, 0, [3]float64{0.5 / 0.7, 0.2 / 0.7, 0}},
		{isobar.PolicyWaterfallByRegion, 0.5, [3]float64{1. / 3, 2. / 3, 0}},
		{isobar.PolicyWaterfallByRegion, 1, [3]float64{1. / 6, 5. / 6, 0}},
		{isobar.PolicySprayToRegion, 1, [3]float64{1. / 6, 5. / 6, 0}},
		{isobar.PolicySprayToWorld, 1, [3]float64{0.2, 0.4, 0.4}},
	} {
		top := underPolicy(t, test.policy)
		top.Services[0].FailoverThreshold = test.threshold
		if test.policy == isobar.PolicyFixed {
			top.Services[0].Localities[1].Weight, top.Services[0].Localities[2].Weight = 1, 1
		}
		p := ticks(t, top, 1, map[string]float64{"us/a": 500})
		for range 10 {
			now := p.Made.Add(5 * time.Second)
			next, err := plan.Next(plan.Input{
				Now: now, Trigger: assign.Tick, Topology: top, Health: half, Previous: p, Version: p.Version + 1,
				Load: demand(now, "checkout", map[string]float64{"us/a": 500}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(next.Violations) > 0 {
				t.Fatalf("violations: %+v", next.Violations)
			}
			p = next
		}
		wantShares(t, p, "us/a", test.want)
		e, err := p.Explain("checkout", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		keeps := 0.0
		if test.policy.FailsOver() && test.threshold != 0.5 {
			keeps = 0.5 / cmp.Or(test.threshold, 0.7)
		}
		if got := e.Localities[0]; got.Locality != loc("us/a") || math.Abs(got.Keeps-keeps) > 1e-9 {
			t.Errorf("%s: %s is explained to keep %v, want %v", test.policy, got.Locality, got.Keeps, keeps)
		}
	}
}
