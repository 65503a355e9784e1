package assign_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

var (
	east  = isobar.MustLocality("east/a")
	eastB = isobar.MustLocality("east/b")
	west  = isobar.MustLocality("west/a")
	asia  = isobar.MustLocality("asia/a")
)

// site makes a site of the given capacity whose endpoints have the given
// health; without any it has two healthy ones.
func site(at isobar.Locality, capacity float64, health ...isobar.HealthStatus) assign.Site {
	if len(health) == 0 {
		health = []isobar.HealthStatus{isobar.Healthy, isobar.Healthy}
	}
	g := &isobar.EndpointGroup{Locality: at}
	up := 0
	for i, h := range health {
		g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{Address: fmt.Sprintf("%s-%d", at, i), Weight: 1, Health: h})
		if h.Usable() {
			up++
		}
	}
	return assign.Site{
		Group: g, Nominal: capacity, Capacity: capacity * float64(up) / float64(len(health)), Ceiling: 0.8, Scale: 1,
	}
}

func source(at isobar.Locality, demand float64, distance []float64, target ...float64) assign.Source {
	return assign.Source{Locality: at, Demand: demand, Distance: distance, Target: target}
}

// input makes an input in mode full; what is special is set by the test.
func input(sites []assign.Site, sources ...assign.Source) assign.Input {
	svc := &isobar.Service{Name: "svc", Localities: localitiesOf(sites)}
	return assign.Input{Service: svc, Sites: sites, Sources: sources, Prices: make([]float64, len(sites))}
}

// localitiesOf are those of a service that has the endpoints of the sites.
func localitiesOf(sites []assign.Site) []isobar.ServiceLocality {
	out := make([]isobar.ServiceLocality, len(sites))
	for l := range sites {
		g := sites[l].Group
		out[l] = isobar.ServiceLocality{Locality: g.Locality, Endpoints: make([]isobar.Endpoint, len(g.Endpoints))}
		for k := range g.Endpoints {
			out[l].Endpoints[k].Address = g.Endpoints[k].Address
		}
	}
	return out
}

// checkInput is what the checker gets of an input. Tests that change the sites mean the service, too.
func checkInput(in assign.Input) invariant.CheckInput {
	svc := *in.Service
	svc.Localities = localitiesOf(in.Sites)
	return invariant.CheckInput{Service: &svc, Sources: in.Sources, Trigger: in.Trigger, Hold: in.Hold}
}

// decide runs Assign and has the result checked.
func decide(t *testing.T, in assign.Input) *assign.Result {
	t.Helper()
	out := assign.Assign(in)
	for _, v := range invariant.Check(in.Previous, out, checkInput(in)) {
		t.Errorf("check: %s from %q: %s", v.Rule, v.Source, v.Text)
	}
	return out
}

// then is the next decision after out: the same input with out as what is
// published.
func then(in assign.Input, out *assign.Result) assign.Input {
	in.Previous = out
	return in
}

func wantShares(t *testing.T, out *assign.Result, source int, points ...float64) {
	t.Helper()
	for l, p := range points {
		if got := 100 * out.Sources[source].Shares[l]; math.Abs(got-p) > 0.02 {
			t.Errorf("source %d, %s: %.2f points, want %.2f (%v)", source, out.Sites[l].Group.Locality, got, p, out.Sources[source].Reasons)
		}
	}
}

func reason(r *assign.SourceResult, code assign.ReasonCode) string {
	for _, x := range r.Reasons {
		if x.Code == code {
			return x.Text
		}
	}
	return ""
}

func wantReason(t *testing.T, out *assign.Result, source int, code assign.ReasonCode) {
	t.Helper()
	if reason(&out.Sources[source], code) == "" {
		t.Errorf("source %d: no reason %q in %v", source, code, out.Sources[source].Reasons)
	}
}

// tiers lists the localities of each priority.
func tiers(a *isobar.Assignment) [][]isobar.Locality {
	var out [][]isobar.Locality
	for _, p := range a.Priorities {
		var ls []isobar.Locality
		for _, lw := range p {
			ls = append(ls, lw.Locality)
		}
		out = append(out, ls)
	}
	return out
}

func wantTiers(t *testing.T, a *isobar.Assignment, want ...[]isobar.Locality) {
	t.Helper()
	if got := tiers(a); !slices.EqualFunc(got, want, slices.Equal[[]isobar.Locality]) {
		t.Errorf("priorities %v, want %v", got, want)
	}
}

// realised returns what a data plane sends to a locality, in points.
func realised(a *isobar.Assignment, kind dataplane.Kind, l isobar.Locality) float64 {
	share := 0.0
	for _, p := range dataplane.PredictAssignment(a, kind, dataplane.DefaultOptions()).Priorities {
		for _, x := range p.Localities {
			if x.Locality == l {
				share += x.Share
			}
		}
	}
	return 100 * share
}
