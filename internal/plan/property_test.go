package plan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestPlansRecover drives random fleets through random changes of topology,
// health, demand and findings, by ticks and rebases: nothing panics, the same
// input gives the same plan, a fallback does less harm than what it replaces,
// and when nothing changes any more the check is content within three ticks.
func TestPlansRecover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 20 {
			trigger := w.happen(t)
			wantMilderFallback(t, w.next(t, trigger))
		}
		w.covered = true
		for calm := range 6 {
			p := w.next(t, assign.Tick)
			if len(p.Violations) > 0 && calm >= 3 {
				t.Fatalf("after %d calm ticks: %+v", calm, p.Violations)
			}
		}
	})
}

// next makes the next plan, twice.
func (w *world) next(t *rapid.T, trigger assign.Trigger) *plan.Plan {
	in := w.input(trigger)
	p, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := asJSON(t, p.Services), asJSON(t, again.Services); a != b {
		t.Fatalf("the same input gave two plans:\n%s\n%s", a, b)
	}
	for _, n := range worldSources {
		if _, err := p.Explain("checkout", sourceOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	w.plan = p
	return p
}

func asJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantMilderFallback looks at a plan that the check did not like.
func wantMilderFallback(t *rapid.T, p *plan.Plan) {
	var refused, left []invariant.Violation
	for _, v := range p.Violations {
		if strings.HasPrefix(v.Text, "also in the previous assignment: ") {
			left = append(left, v)
		} else {
			refused = append(refused, v)
		}
	}
	s, _ := p.Service("checkout")
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		fell := slices.ContainsFunc(r.Reasons, func(x assign.Reason) bool { return x.Code == assign.ReasonFallback })
		if fell && !invariant.Milder(left, refused) {
			t.Fatalf("%s fell back from %+v to %+v", r.Source, refused, left)
		}
		if len(left) > 0 && !fell {
			t.Fatalf("%s does not tell of the fallback: %v", r.Source, r.Reasons)
		}
	}
}

// An endpoint that the locality's rate leaves nothing is the only one that is
// up: that is little capacity, but nobody drained it.
func TestALocalityWithoutARemainderIsServed(t *testing.T) {
	top := threeZones(t)
	top.Services[0].Localities = []isobar.ServiceLocality{{Locality: loc("us/a"), MaxRate: 100, Endpoints: []isobar.Endpoint{
		{Address: "10.0.0.1:80", MaxRate: 100, Health: isobar.Unhealthy}, {Address: "10.0.0.2:80"},
	}}}
	p := ticks(t, top, 3, map[string]float64{"us/a": 50})
	if s := share(t, p, "us/a", "us/a"); s != 1 {
		t.Errorf("us/a keeps %v of its traffic, want all", s)
	}
}
