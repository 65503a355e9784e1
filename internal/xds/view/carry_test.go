package view_test

import (
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// watchedPlan notes what is asked of it.
type watchedPlan struct {
	*fakePlan

	asked []string
}

func (p *watchedPlan) Assignment(service string, l isobar.Locality) *isobar.Assignment {
	p.asked = append(p.asked, service)
	return p.fakePlan.Assignment(service, l)
}

// TestEqualBasisIsNotCompared: of a plan only the services are asked for that may
// be other than in the plan that a view was made of.
func TestEqualBasisIsNotCompared(t *testing.T) {
	b := view.NewBuilder(view.Options{})
	a, xa := assignment("a", 1), "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/a"
	first := b.Build(planOf("1", a, assignment("b", 1), assignment("gone", 1)), nil)
	v1 := first.View(east, nil, all)
	for _, name := range []string{"a", xa, "b", "gone", "later"} {
		v1.Lookup(resource.Endpoints, name)
	}
	p := &watchedPlan{fakePlan: planOf("2", a, assignment("b", 2), assignment("later", 1))}
	second := b.Build(p, first)
	v2 := second.View(east, v1, all)
	v2.Appear([]string{"later"})
	slices.Sort(p.asked)
	if want := []string{"b", "gone", "later"}; !slices.Equal(p.asked, want) {
		t.Errorf("asked for %q, want %q", p.asked, want)
	}
	if changed, known := v2.Changed(first.Seq(), resource.Endpoints); !known || !slices.Equal(changed, []string{"b", "gone", "later"}) {
		t.Errorf("changed: %q, %v", changed, known)
	}
	if v2.Lookup(resource.Endpoints, "a") != v1.Lookup(resource.Endpoints, "a") || v2.Lookup(resource.Endpoints, xa) != v1.Lookup(resource.Endpoints, xa) {
		t.Error("what was carried over is another")
	}

	// A set between was never seen from here: b is as in the one before, but not
	// as in the one that is carried from.
	p = &watchedPlan{fakePlan: planOf("3", a, p.given["b"], p.given["later"])}
	v3 := b.Build(p, second).View(east, v1, all)
	if r := v3.Lookup(resource.Endpoints, "b"); r == nil || r.Version != v2.Lookup(resource.Endpoints, "b").Version {
		t.Errorf("b is %v", r)
	}
	if v3.Lookup(resource.Endpoints, "gone") != nil {
		t.Error("a service that is gone is served")
	}
}
