package operators

import (
	"math"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestSampled: the sums of all services, worked by hand.
func TestSampled(t *testing.T) {
	sites := func(capacity float64, names ...string) []assign.Site {
		var out []assign.Site
		for _, n := range names {
			out = append(out, assign.Site{Group: &isobar.EndpointGroup{Locality: isobar.MustLocality(n)}, Capacity: capacity, Unmanaged: 10})
		}
		return out
	}
	p := &plan.Plan{PlanGap: 0.02, Services: []*plan.Service{
		{Spec: &isobar.Service{Name: "a"}, PlanGap: 0.01, Result: &assign.Result{
			Sites: sites(100, "us/a", "us/b", "eu/a"), Load: []float64{40, 20, 40}, Drop: 0.1,
			Sources: []assign.SourceResult{
				{Source: isobar.MustLocality("us/a"), Demand: 100, Shares: []float64{0.4, 0.2, 0.4}},
				{Demand: 300, Shares: []float64{0, 1, 0}}, // without a locality
			},
		}},
		{Spec: &isobar.Service{Name: "b"}, Result: &assign.Result{
			Sites: sites(0, "us/a"), Load: []float64{100},
			Sources: []assign.SourceResult{{Source: isobar.MustLocality("eu/a"), Demand: 100, Shares: []float64{1}}},
		}},
		{Spec: &isobar.Service{Name: "c"}}, // not decided yet
	}}
	got := sampled(p)
	if len(got) != 3 || got[0].Name != "" || got[1].Name != "a" || got[2].Name != "b" {
		t.Fatalf("%+v", got)
	}
	for i, want := range [][5]float64{{500, 0.08, 0.02, 0.32, 0.28}, {400, 0.1, 0.01, 0.15, 0.1}, {100, 0, 0, 1, 1}} {
		v := got[i].Values
		for k, x := range [5]float64{v.Demand, v.Drop, v.Gap, v.CrossZone, v.CrossRegion} {
			if math.Abs(x-want[k]) > 1e-12 {
				t.Errorf("%q, value %d: %v instead of %v", got[i].Name, k, x, want[k])
			}
		}
	}
	if s := got[1].Sites; len(s) != 3 || s[0].Utilization != 0.5 || s[1].Utilization != 0.3 {
		t.Errorf("localities %+v", s)
	}
	if len(got[2].Sites) != 0 {
		t.Errorf("a locality without capacity has a utilization: %+v", got[2].Sites)
	}
}
