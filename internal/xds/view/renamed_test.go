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
		s.ORCA.On = true // all encodings again, under the same names
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

// A listener and an assignment have the DNS name of a Kubernetes Service as an alias,
// unless a service has this name itself. Other resources have no alias.
func TestAlias(t *testing.T) {
	const alias, name = "checkout.shop.svc.cluster.local:80", "checkout.shop:80"
	b := view.NewBuilder(view.Options{})
	first := b.Build(planOf("1", assignment(name, 1)), nil)
	v := first.View(east, nil, all)
	for kind, want := range map[resource.Kind]bool{resource.Listener: true, resource.Cluster: false, resource.Route: false, resource.Endpoints: true} {
		if got := v.Lookup(kind, alias) != nil; got != want || first.Serves(kind, alias) != want {
			t.Errorf("%s %s: %t, want %t", kind, alias, got, want)
		}
	}
	routes := func(v *view.View) bool {
		return strings.Contains(string(v.Lookup(resource.Listener, alias).SotW), name)
	}
	if !routes(v) {
		t.Error("the listener does not lead to the service")
	}
	second := b.Build(planOf("2", assignment(name, 1), assignment(alias, 1)), first)
	if routes(second.View(east, v, all)) {
		t.Error("the alias takes the name of a service")
	}
	third := b.Build(planOf("3", assignment("cart.shop:80", 1)), second)
	if v := third.View(east, nil, all); third.Serves(resource.Listener, alias) || v.Lookup(resource.Listener, alias) != nil {
		t.Error("the alias outlives its service")
	}
}

// A name that is an alias stands for another service once one of that name comes or
// goes, even though the assignment of neither service changes.
func TestAliasTurnsToItsService(t *testing.T) {
	const alias, name = "checkout.shop.svc.cluster.local:80", "checkout.shop:80"
	b := view.NewBuilder(view.Options{})
	long, short := assignment(alias, 2), assignment(name, 1)
	first := b.Build(planOf("1", short), nil)
	v := first.View(east, nil, all)
	expect := func(set *view.Set, v *view.View, a *isobar.Assignment) {
		t.Helper()
		got, want := v.Lookup(resource.Endpoints, alias), set.View(east, nil, all).Lookup(resource.Endpoints, alias)
		if got == nil || got.Version != want.Version || set.ServiceOf(alias) != a.Service {
			t.Errorf("the assignment of %s is that of another service than %s", alias, a.Service)
		}
	}
	expect(first, v, short)
	for i, services := range [][]*isobar.Assignment{{short, long}, {short}} {
		set := b.Build(planOf(fmt.Sprint(i+2), services...), first)
		v = set.View(east, v, all)
		expect(set, v, services[len(services)-1])
		if names, known := v.Changed(first.Seq(), resource.Endpoints); !known || len(names) != 1 {
			t.Errorf("changed: %q, known: %t", names, known)
		}
		first = set
	}
}
