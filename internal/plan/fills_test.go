package plan_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestFillsAreOutdated: by more than a tenth of capacity or of utilization, and by other
// services or localities.
func TestFillsAreOutdated(t *testing.T) {
	type site struct {
		at             string
		capacity, load float64
	}
	of := func(service string, sites ...site) *plan.Plan {
		s := &plan.Service{Spec: &isobar.Service{Name: service}, Result: &assign.Result{}}
		for _, x := range sites {
			s.Result.Sites = append(s.Result.Sites, assign.Site{Group: &isobar.EndpointGroup{Locality: isobar.MustLocality(x.at)}, Capacity: x.capacity})
			s.Result.Load = append(s.Result.Load, x.load)
		}
		return &plan.Plan{Services: []*plan.Service{s, {Spec: &isobar.Service{Name: "undecided"}}}}
	}
	then := plan.FillsOf(of("a", site{"eu/a", 1000, 500}, site{"eu/b", 0, 0}))
	for name, tt := range map[string]struct {
		now  *plan.Plan
		want bool
	}{
		"same":               {of("a", site{"eu/a", 1000, 500}, site{"eu/b", 0, 0}), false},
		"a little fuller":    {of("a", site{"eu/a", 1000, 590}, site{"eu/b", 0, 0}), false},
		"fuller":             {of("a", site{"eu/a", 1000, 610}, site{"eu/b", 0, 0}), true},
		"emptier":            {of("a", site{"eu/a", 1000, 390}, site{"eu/b", 0, 0}), true},
		"a little larger":    {of("a", site{"eu/a", 1090, 545}, site{"eu/b", 0, 0}), false},
		"larger":             {of("a", site{"eu/a", 1200, 600}, site{"eu/b", 0, 0}), true},
		"capacity came":      {of("a", site{"eu/a", 1000, 500}, site{"eu/b", 10, 0}), true},
		"a locality is gone": {of("a", site{"eu/a", 1000, 500}), true},
		"another locality":   {of("a", site{"eu/a", 1000, 500}, site{"eu/c", 0, 0}), true},
		"another service":    {of("b", site{"eu/a", 1000, 500}, site{"eu/b", 0, 0}), true},
		"no service":         {&plan.Plan{}, true},
	} {
		if got := then.Outdated(tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
