package views_test

import (
	"slices"
	"testing"

	"github.com/isobar-xds/isobar/internal/views"
	"github.com/isobar-xds/isobar/internal/wire"
)

// A cluster depends on whether its endpoints report ORCA. When that changes, it
// is told to have changed, and is another one; the assignment stays.
func TestAClusterFollowsItsService(t *testing.T) {
	b := views.NewBuilder(views.Options{})
	a, other := assignment("a", 1), assignment("b", 1)
	first := b.Build(planOf("1", a, other), nil)
	v1 := first.View(east, nil, all)
	cluster, endpoints := v1.Lookup(wire.Cluster, "a"), v1.Lookup(wire.Endpoints, "a")

	next := planOf("2", a, other)
	next.specs[0].ORCA = true
	second := b.Build(next, first)
	v2 := second.View(east, v1, all)
	if r := v2.Lookup(wire.Cluster, "a"); r == cluster || r.Version == cluster.Version {
		t.Error("the cluster did not follow its service")
	}
	if changed, known := v2.Changed(first.Seq(), wire.Cluster); !known || !slices.Equal(changed, []string{"a"}) {
		t.Errorf("changed clusters: %v, %v", changed, known)
	}
	if v2.Lookup(wire.Endpoints, "a") != endpoints {
		t.Error("the assignment changed with the cluster")
	}
}

// What changed and what is gone is told in full.
func TestAllChangesAreTold(t *testing.T) {
	b := views.NewBuilder(views.Options{})
	first := b.Build(planOf("1", assignment("a", 1), assignment("b", 1), assignment("c", 1), assignment("d", 1)), nil)
	v1 := first.View(east, nil, all)
	for _, name := range []string{"a", "b", "c", "d"} {
		v1.Lookup(wire.Endpoints, name)
	}
	second := b.Build(planOf("2", assignment("a", 2), assignment("b", 2)), first)
	v2 := second.View(east, v1, all)
	if changed, known := v2.Changed(first.Seq(), wire.Endpoints); !known || !slices.Equal(changed, []string{"a", "b", "c", "d"}) {
		t.Errorf("changed assignments: %v, %v", changed, known)
	}
	if changed, known := v2.Changed(first.Seq(), wire.Cluster); !known || !slices.Equal(changed, []string{"c", "d"}) {
		t.Errorf("changed clusters: %v, %v", changed, known)
	}
}
