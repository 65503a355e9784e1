//go:build !race

package plan_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestSharedPlansGiveTheSame asserts that clients of a replica that opened a shared
// plan get exactly what those of its maker get, clients of localities that nobody
// knows among them, and that what did not change keeps its identity.
func TestSharedPlansGiveTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		sharer := &plan.Sharer{}
		var opened *plan.Opened
		for range 6 {
			p := w.next(t, w.happen(t))
			shared, err := sharer.Share(p, plan.Origin{Who: "ada"})
			if err != nil {
				t.Fatal(err)
			}
			before := opened
			if opened, err = plan.Open(shared, before, w.now.Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			wantSameAssignments(t, p, opened.Plan)
			if opened.Origin.Who != "ada" || opened.Plan.Version != p.Version {
				t.Fatalf("the header reads %+v, version %d", opened.Origin, opened.Plan.Version)
			}
			again, err := plan.Open(shared, opened, w.now)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range again.Plan.Services {
				if s != opened.Plan.Services[i] || again.Plan.Basis(s.Spec.Name) != opened.Plan.Basis(s.Spec.Name) {
					t.Fatal("a service that did not change lost its identity")
				}
			}
		}
		wantSameRestart(t, w, opened)
	})
}

func wantSameAssignments(t *rapid.T, want, got *plan.Plan) {
	for _, n := range append([]string{"r7/z7", "r1/z7"}, worldSources...) {
		a, b := asJSON(t, want.Assignment("checkout", sourceOf(n))), asJSON(t, got.Assignment("checkout", sourceOf(n)))
		if a != b {
			t.Fatalf("clients in %q get %s\n from the maker, and %s\nfrom a replica", n, a, b)
		}
	}
	for _, s := range want.Services {
		if a, b := asJSON(t, s.Spec), asJSON(t, got.Spec(s.Spec.Name)); a != b {
			t.Fatalf("the service is %s, and %s on a replica", a, b)
		}
	}
}

// wantSameRestart asserts that a new leader goes on as a restarted one would.
func wantSameRestart(t *rapid.T, w *world, opened *plan.Opened) {
	restore := func(saved plan.Saved) *plan.Plan {
		saved.Made = w.now
		p, err := plan.Restore(&saved, w.topology, w.table, w.now, 1_000)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := restore(w.plan.Save()), restore(opened.Saved)
	wantSameAssignments(t, a, b)
}

// spilled is a plan in which one zone does not carry all of its own traffic.
func spilled(t *testing.T) *plan.Plan {
	t.Helper()
	return ticks(t, threeZones(t), 4, map[string]float64{"us/a": 1200, "us/b": 100})
}

func TestSharedTimesKeepTheirAge(t *testing.T) {
	p := spilled(t)
	shared, err := (&plan.Sharer{}).Share(p, plan.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	now := p.Made.Add(-time.Hour) // this clock is an hour behind
	opened, err := plan.Open(shared, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	if !opened.Plan.Made.Equal(now) || !opened.Saved.Made.Equal(now) {
		t.Fatalf("made %v by the other clock", opened.Plan.Made)
	}
}

// TestSharedPlansKeepTheirFieldNames: replicas of earlier versions read unmanaged load and
// variability by the first names of these fields.
func TestSharedPlansKeepTheirFieldNames(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Policy = isobar.PolicyWaterfallByZone
	p := decided(t, plan.Input{
		Now: t0, Trigger: assign.Tick, Topology: top, Version: 1, Load: demand(t0, "checkout", map[string]float64{"us/a": 500}),
		Deviations: []load.Deviations{{Service: "checkout", Unmanaged: []load.Landing{{Source: loc("us/a"), Locality: loc("us/b"), Rate: 200}}}},
	})
	shared, err := (&plan.Sharer{}).Share(p, plan.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"findings":{"Service":"checkout","Background":[`, `"background":200`, `"Background":200`, `"Swing":`, `"WarmSwing":`} {
		if !bytes.Contains(shared.Services[0].Decision, []byte(part)) {
			t.Errorf("no %s in %s", part, shared.Services[0].Decision)
		}
	}
}

func TestBadSharedPlans(t *testing.T) {
	p := spilled(t)
	good, err := (&plan.Sharer{}).Share(p, plan.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(s *plan.Shared){
		"no header":         func(s *plan.Shared) { s.Header = nil },
		"cut configuration": func(s *plan.Shared) { s.Services[0].Configuration = s.Services[0].Configuration[:9] },
		"cut decision":      func(s *plan.Shared) { s.Services[0].Decision = s.Services[0].Decision[:9] },
		"another service":   func(s *plan.Shared) { s.Services[0].Name = "x" },
		"no groups":         func(s *plan.Shared) { s.Services[0].Configuration = []byte(`{"spec":{"name":"checkout"},"groups":[]}`) },
		"null group": func(s *plan.Shared) {
			s.Services[0].Configuration = []byte(`{"spec":{"name":"checkout"},"groups":[null]}`)
		},
		"group out of range": func(s *plan.Shared) { replace(s, `"group":0`, `"group":900`) },
		"negative group":     func(s *plan.Shared) { replace(s, `"group":0`, `"group":-1`) },
		"missing shares":     func(s *plan.Shared) { replace(s, `"shares":[`, `"shares":[0,`) },
		"unsorted":           func(s *plan.Shared) { s.Services = append(s.Services, plan.SharedService{Name: "a"}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := plan.Shared{Header: good.Header, Services: append([]plan.SharedService(nil), good.Services...)}
			damage(&s)
			if _, err := plan.Open(&s, nil, p.Made); err == nil || !strings.Contains(err.Error(), "not a plan") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func replace(s *plan.Shared, old, by string) {
	s.Services[0].Decision = bytes.ReplaceAll(s.Services[0].Decision, []byte(old), []byte(by))
}

// FuzzOpenShared asserts that no content panics, and that what opens serves.
func FuzzOpenShared(f *testing.F) {
	good, err := (&plan.Sharer{}).Share(spilled(&testing.T{}), plan.Origin{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Header, good.Services[0].Configuration, good.Services[0].Decision)
	f.Fuzz(func(_ *testing.T, header, configuration, decision []byte) {
		s := &plan.Shared{Header: header, Services: []plan.SharedService{{Name: "checkout", Configuration: configuration, Decision: decision}}}
		opened, err := plan.Open(s, nil, t0)
		if err != nil {
			return
		}
		opened.Plan.Assignment("checkout", isobar.Locality{Region: "r7"})
		_, _ = plan.Restore(&opened.Saved, opened.Plan.Topology, health.Table{}, t0, 1<<40)
	})
}
