package view_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

var _ view.Plan = (*plan.Plan)(nil)

var (
	east = isobar.MustLocality("us-east/b")
	west = isobar.MustLocality("us-west/a")
)

// fakePlan has the same assignments for all sources.
type fakePlan struct {
	limits  map[string]uint32 // of requests in progress
	version string
	specs   []*isobar.Service // sorted
	given   map[string]*isobar.Assignment
	awaited []isobar.Service
}

func (p *fakePlan) VersionString() string { return p.version }

func (p *fakePlan) RequestLimit(name string) uint32 { return p.limits[name] }

func (p *fakePlan) Awaited() []isobar.Service { return p.awaited }

func (p *fakePlan) ServiceNames() []string {
	var out []string
	for _, s := range p.specs {
		out = append(out, s.Name)
	}
	return out
}

func (p *fakePlan) Spec(name string) *isobar.Service {
	for _, s := range p.specs {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (p *fakePlan) Assignment(service string, _ isobar.Locality) *isobar.Assignment {
	return p.given[service]
}

func (p *fakePlan) Basis(service string) any {
	if a := p.given[service]; a != nil {
		return a
	}
	return nil
}

func assignment(name string, weight uint32) *isobar.Assignment {
	g := &isobar.EndpointGroup{Locality: east, Endpoints: []isobar.WeightedEndpoint{{Address: "10.0.0.1:80", Weight: 1}}}
	return &isobar.Assignment{
		Service: name, OverprovisioningFactor: 140,
		Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: g, Weight: weight}}},
	}
}

func planOf(version string, services ...*isobar.Assignment) *fakePlan {
	p := &fakePlan{version: version, given: map[string]*isobar.Assignment{}}
	for _, a := range services {
		p.specs = append(p.specs, &isobar.Service{Name: a.Service})
		p.given[a.Service] = a
	}
	return p
}

func all(string) bool { return true }

// encodings counts what was encoded of a type.
func encodings(t *testing.T, r *prometheus.Registry, kind string) int {
	t.Helper()
	return int(testhelp.Metric(t, r, "isobar_xds_resources_encoded_total", kind))
}

func TestEachResourceIsEncodedOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := view.NewBuilder(view.Options{Registerer: registry})
	s := b.Build(planOf("1", assignment("a", 1), assignment("b", 1)), nil)
	if n := encodings(t, registry, "eds") + encodings(t, registry, "cds"); n != 0 {
		t.Fatalf("%d resources encoded before anybody asked", n)
	}
	v := s.View(east, nil, all)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				v.Lookup(resource.Endpoints, "a")
				v.Lookup(resource.Cluster, "a")
				s.View(west, nil, all).Lookup(resource.Cluster, "a") // clusters do not depend on who asks
			}
		})
	}
	wg.Wait()
	if e, c := encodings(t, registry, "eds"), encodings(t, registry, "cds"); e != 1 || c != 1 {
		t.Errorf("encoded %d assignments and %d clusters, want one each", e, c)
	}
}

func TestUnchangedResourcesAreCarriedOver(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := view.NewBuilder(view.Options{Registerer: registry})
	a, other := assignment("a", 1), assignment("b", 1)
	first := b.Build(planOf("1", a, other), nil)
	v1 := first.View(east, nil, all)
	ra, rb, ca := v1.Lookup(resource.Endpoints, "a"), v1.Lookup(resource.Endpoints, "b"), v1.Lookup(resource.Cluster, "a")

	// The same pointer, equal content, and other content.
	second := b.Build(planOf("2", a, assignment("b", 1)), first)
	v2 := second.View(east, v1, all)
	if v2.Lookup(resource.Endpoints, "a") != ra || v2.Lookup(resource.Endpoints, "b") != rb || v2.Lookup(resource.Cluster, "a") != ca {
		t.Error("equal content got another resource")
	}
	if n := encodings(t, registry, "eds"); n != 3 {
		t.Errorf("%d encodings, want 3: a, b, and b compared", n)
	}
	third := b.Build(planOf("3", a, assignment("b", 2)), second)
	v3 := third.View(east, v2, all)
	if r := v3.Lookup(resource.Endpoints, "b"); r == rb || r.Version == rb.Version {
		t.Error("other content got the same resource")
	}
	if changed, known := v3.Changed(second.Seq(), resource.Endpoints); !known || !slices.Equal(changed, []string{"b"}) {
		t.Errorf("changed: %v, %v", changed, known)
	}
	if changed, known := v3.Changed(second.Seq(), resource.Cluster); !known || len(changed) != 0 {
		t.Errorf("changed clusters: %v, %v", changed, known)
	}
	if _, known := v3.Changed(first.Seq(), resource.Endpoints); known {
		t.Error("a comparison with a set that was skipped is said to be known")
	}
	if changed, known := v3.Changed(third.Seq(), resource.Endpoints); !known || len(changed) != 0 {
		t.Errorf("changed since itself: %v, %v", changed, known)
	}
}

func TestServicesComeAndGo(t *testing.T) {
	b := view.NewBuilder(view.Options{})
	first := b.Build(planOf("1", assignment("a", 1), assignment("b", 1)), nil)
	v1 := first.View(east, nil, all)
	for _, n := range []string{"a", "b", "late"} {
		v1.Lookup(resource.Endpoints, n)
	}
	second := b.Build(planOf("2", assignment("a", 1), assignment("late", 1)), first)
	v2 := second.View(east, v1, all)
	v2.Appear([]string{"late"})
	for _, k := range []resource.Kind{resource.Endpoints, resource.Cluster} {
		changed, known := v2.Changed(first.Seq(), k)
		slices.Sort(changed)
		changed = slices.DeleteFunc(changed, func(n string) bool { return n == "a" }) // another pointer
		if !known || !slices.Equal(changed, []string{"b", "late"}) {
			t.Errorf("%s: changed %v, %v", k, changed, known)
		}
	}
	if !v2.Gone("b") || v2.Gone("late") || v2.Lookup(resource.Endpoints, "b") != nil || v2.Lookup(resource.Endpoints, "late") == nil ||
		v2.Lookup(resource.Listener, "b") != nil || v2.Lookup(resource.Route, "late") == nil || v2.Lookup(resource.Other, "late") != nil {
		t.Error("what is there and what is gone is wrong")
	}
	if e := v2.Empty(rpc.As{}, "b"); e == nil || e != v2.Empty(rpc.As{}, "b") {
		t.Error("the empty assignment is not made once")
	}
	if second.Version() != "2" || !slices.Equal(second.Names(), []string{"a", "late"}) {
		t.Errorf("version %s of %v", second.Version(), second.Names())
	}
}

func TestRefusedContentIsNotSentAndTheLastGoodStays(t *testing.T) {
	var refusals []view.Refusal
	b := view.NewBuilder(view.Options{Refused: func(r view.Refusal) { refusals = append(refusals, r) }})
	bad := func(drop float64) *isobar.Assignment {
		a := assignment("a", 1)
		a.Drop = drop
		return a
	}
	first := b.Build(planOf("1", assignment("a", 1)), nil)
	v := first.View(east, nil, all)
	good := v.Lookup(resource.Endpoints, "a")
	set := first
	for i := range 3 { // and it stays for as long as it takes
		a := bad(math.NaN())
		set = b.Build(planOf(fmt.Sprint(i+2), a), set)
		v = set.View(east, v, all)
		if v.Lookup(resource.Endpoints, "a") != good {
			t.Fatal("the last good assignment is gone")
		}
	}
	if len(refusals) != 3 || refusals[0].Service != "a" || refusals[0].Source != east || refusals[0].Type != "eds" || !errors.Is(refusals[0].Err, rpc.ErrRefused) {
		t.Errorf("refusals: %+v", refusals)
	}
	// Nothing is encoded in between, and still the last good one is there.
	set = b.Build(planOf("6", assignment("a", 7)), set)
	v = set.View(east, v, all)
	set = b.Build(planOf("7", bad(-1)), set)
	v = set.View(east, v, all)
	if v.Lookup(resource.Endpoints, "a") != good {
		t.Error("the last good assignment is gone")
	}
	set = b.Build(planOf("8", assignment("a", 2)), set)
	if r := set.View(east, v, all).Lookup(resource.Endpoints, "a"); r == good || r == nil {
		t.Error("mended content is not sent")
	}
	// Without a good one there is nothing, and no empty assignment either.
	fresh := set.View(west, nil, all)
	if fresh.Gone("a") {
		t.Error("a refused assignment is taken for a removed service")
	}
}

func TestUnwantedEntriesAreDropped(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := view.NewBuilder(view.Options{Registerer: registry})
	a := assignment("a", 1)
	first := b.Build(planOf("1", a), nil)
	v1 := first.View(east, nil, all)
	v1.Lookup(resource.Endpoints, "a")
	second := b.Build(planOf("2", a), first)
	v2 := second.View(east, v1, func(string) bool { return false })
	v2.Lookup(resource.Endpoints, "a")
	if n := encodings(t, registry, "eds"); n != 2 {
		t.Errorf("%d encodings, want 2: what nobody wants is not kept", n)
	}
}
