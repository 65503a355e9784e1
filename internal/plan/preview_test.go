package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// previewed is a fleet of services, of which some call others, that has settled,
// and a change of some.
func previewed(t *rapid.T) (before *plan.Plan, changed *isobar.Topology) {
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("r0"), To: loc("r1"), MS: 40}})
	if err != nil {
		t.Fatal(err)
	}
	zones := []isobar.Locality{loc("r0/z0"), loc("r0/z1"), loc("r1/z0")}
	top := &isobar.Topology{Network: network, Revision: 1}
	snap := &load.Snapshot{At: t0}
	for s := range 5 {
		svc := isobar.Service{Name: fmt.Sprintf("s%d", s)}
		for l, z := range zones {
			address := fmt.Sprintf("10.%d.%d.1:80", s, l)
			svc.Localities = append(svc.Localities, isobar.ServiceLocality{Locality: z, MaxRate: 1000, Concurrency: 20, Endpoints: []isobar.Endpoint{{Address: address}}})
		}
		if s < 2 && rapid.Bool().Draw(t, "calls") { // callers have the lower numbers: no circles
			svc.Calls = []isobar.Call{{Service: fmt.Sprintf("s%d", rapid.IntRange(2, 4).Draw(t, "callee")), PerRequest: 0.5}}
		}
		top.Services = append(top.Services, svc)
		sl := load.ServiceLoad{Name: svc.Name, Coverage: 1, Covered: true}
		for _, z := range zones {
			rate := rapid.SampledFrom([]float64{0, 100, 400, 700}).Draw(t, "rate")
			sl.Sources = append(sl.Sources, load.SourceLoad{Source: z, Demand: rate, Raw: rate, Nodes: 3})
		}
		snap.Services = append(snap.Services, sl)
	}
	top.Normalize()
	for tick := range 40 {
		in := plan.Input{Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: top, Load: snap, Previous: before, Version: uint64(tick + 1)}
		if before, err = plan.Next(in); err != nil {
			t.Fatal(err)
		}
	}
	changed = &isobar.Topology{Network: network, Revision: 2}
	for s := range top.Services {
		svc := top.Services[s]
		if rapid.IntRange(0, 2).Draw(t, "changes") == 0 {
			svc.Localities = slices.Clone(svc.Localities)
			svc.Localities[rapid.IntRange(0, 2).Draw(t, "where")].MaxRate = rapid.SampledFrom([]float64{200, 600, 3000}).Draw(t, "max_rate")
		}
		changed.Services = append(changed.Services, svc)
	}
	return before, changed
}

// TestPreviewPlaysWhatMatters: leaving out what does not move any more changes
// nothing of what would come. The dumb twin plays everything to the end.
func TestPreviewPlaysWhatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, changed := previewed(t)
		p, err := plan.NewPreview(&plan.Turn{Now: t0.Add(time.Hour), Previous: before, Version: before.Version + 1, Topology: changed}, 5*time.Second)
		for more := true; more && err == nil; {
			more, err = p.Step()
		}
		if err != nil {
			t.Fatal(err)
		}
		twin, first := before, before
		for tick := range p.Ticks + 1 {
			trigger := assign.Tick
			if tick == 0 {
				trigger = assign.Rebase
			}
			twin, err = plan.Next(plan.Input{
				Now: t0.Add(time.Hour + time.Duration(tick)*5*time.Second), Trigger: trigger, Topology: changed,
				Previous: twin, Version: before.Version + 1 + uint64(tick),
			})
			if err != nil {
				t.Fatal(err)
			}
			if tick < 2 {
				first = twin
			}
		}
		same := func(name string, got, want *plan.Plan) {
			a, _ := got.Service(name)
			b, _ := want.Service(name)
			for i := range b.Result.Sources {
				if !slices.Equal(a.Result.Sources[i].Shares, b.Result.Sources[i].Shares) {
					t.Fatalf("%s from %s: %v, want %v", name, b.Result.Sources[i].Source, a.Result.Sources[i].Shares, b.Result.Sources[i].Shares)
				}
			}
		}
		for i := range changed.Services {
			same(changed.Services[i].Name, p.First, first)
			same(changed.Services[i].Name, p.Settled, twin)
		}
	})
}

// TestPreviewOfNothing ends at once, and says that all stays.
func TestPreviewOfNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, _ := previewed(t)
		p, err := plan.NewPreview(&plan.Turn{Now: t0.Add(time.Hour), Previous: before, Version: before.Version + 1, Topology: before.Topology}, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		more, err := p.Step()
		if d := p.Difference(); more || err != nil || !d.Settled || d.Same != 5 || d.Ticks != 0 || p.Ticks != 0 {
			t.Fatalf("%v %+v, %v", more, d, err)
		}
	})
}
