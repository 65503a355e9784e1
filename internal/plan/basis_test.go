package plan_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestCapacityBasis: what a capacity rests on, also where the requests correct what is
// declared.
func TestCapacityBasis(t *testing.T) {
	here := isobar.MustLocality("us/a")
	observed := []plan.ObservedCapacity{{Locality: here, Declared: 100, InUse: 40}}
	learned := []load.Capacity{{Locality: here, InUse: 40}}
	for name, tt := range map[string]struct {
		rate     float64
		observed []plan.ObservedCapacity
		learned  []load.Capacity
		want     string
	}{
		"declared":                              {100, nil, nil, plan.CapacityDeclared},
		"declared, and endpoints report":        {100, nil, learned, plan.CapacityDeclared},
		"declared, and requests agree":          {100, []plan.ObservedCapacity{{Locality: here, Declared: 100, InUse: 100.2}}, nil, plan.CapacityDeclared},
		"declared, and requests correct it":     {100, observed, nil, plan.CapacityEstimated},
		"not declared, and requests tell":       {0, observed, nil, plan.CapacityEstimated},
		"not declared, and endpoints report":    {0, nil, learned, plan.CapacityEstimated},
		"not declared, and nothing is known":    {0, nil, nil, plan.CapacityAssumed},
		"not declared, and nothing can be told": {0, []plan.ObservedCapacity{{Locality: here}}, nil, plan.CapacityAssumed},
	} {
		t.Run(name, func(t *testing.T) {
			s := &plan.Service{
				Spec:     &isobar.Service{Name: "x", Localities: []isobar.ServiceLocality{{Locality: here, MaxRate: tt.rate, Endpoints: []isobar.Endpoint{{Address: "127.0.0.1:1"}}}}},
				Observed: tt.observed, Learned: tt.learned,
			}
			if got := s.Site(0).CapacityBasis(); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestDifferenceTellsCapacityBasis: of a capacity that nobody declared, a reader of a difference
// learns so, and of one that requests correct.
func TestDifferenceTellsCapacityBasis(t *testing.T) {
	at := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b"), isobar.MustLocality("us/c")}
	s := &plan.Service{
		Spec: &isobar.Service{Name: "x"}, Observed: []plan.ObservedCapacity{{Locality: at[1], Declared: 100, InUse: 40}}, Result: &assign.Result{Load: make([]float64, len(at))},
	}
	for i, rate := range []float64{100, 100, 0} {
		s.Spec.Localities = append(s.Spec.Localities, isobar.ServiceLocality{Locality: at[i], MaxRate: rate, Endpoints: []isobar.Endpoint{{Address: "127.0.0.1:1"}}})
		s.Sites = append(s.Sites, assign.Site{Group: &isobar.EndpointGroup{Locality: at[i]}, Capacity: 100, Ceiling: 0.8})
	}
	s.Result.Sites = s.Sites
	d := plan.Compare(&plan.Plan{}, &plan.Plan{Services: []*plan.Service{s}})
	if len(d.Services) != 1 || len(d.Services[0].Localities) != len(at) {
		t.Fatalf("%+v", d)
	}
	for i, want := range []string{plan.CapacityDeclared, plan.CapacityEstimated, plan.CapacityAssumed} {
		if got := d.Services[0].Localities[i]; got.Locality != at[i] || got.CapacityBasis != want || got.Ceiling != 0.8 {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}
