package view_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Clients may make up any number of names that stand for a service: what is kept
// of them is bounded over all services, and free again when these go.
func TestNamesOfAllServicesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := view.NewBuilder(view.Options{Registerer: registry})
	const services, names = 60, 100
	var some, other []*isobar.Assignment
	for i := range services {
		some = append(some, assignment(fmt.Sprint("a", i), 1))
		other = append(other, assignment(fmt.Sprint("b", i), 1))
	}
	ask := func(s *view.Set, letter string, services int) (encoded int) {
		before := encodings(t, registry, "cds")
		v := s.View(east, nil, all)
		for i := range services {
			for j := range names {
				name := fmt.Sprintf("xdstp://x/envoy.config.cluster.v3.Cluster/%s%d?j=%d%s", letter, i, j, strings.Repeat("x", 1900))
				if v.Lookup(resource.Cluster, name) == nil {
					t.Fatalf("no cluster %s", name)
				}
			}
		}
		return encodings(t, registry, "cds") - before
	}
	first := b.Build(planOf("1", some...), nil)
	if got := ask(first, "a", services); got != services*names {
		t.Fatalf("%d encoded at first", got)
	}
	again := ask(first, "a", services)
	if again == 0 || again > services*names/2 {
		t.Errorf("%d of %d were not kept, want a part of them", again, services*names)
	}
	orca := planOf("2", some...)
	for _, s := range orca.specs {
		s.ORCA.On = true // all encodings anew, under the same names
	}
	second := b.Build(orca, first)
	ask(second, "a", services)
	if got := ask(second, "a", services); got != again {
		t.Errorf("%d were not kept in another form, want %d", got, again)
	}
	third := b.Build(planOf("3", other...), second)
	ask(third, "b", services)
	if got := ask(third, "b", services); got != again {
		t.Errorf("%d were not kept of other services, want %d", got, again)
	}
}
