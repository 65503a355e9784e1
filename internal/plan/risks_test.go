package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestRisksOfAChange: capacity that is removed from under the load of today is told
// first, with the figures; more capacity is no risk.
func TestRisksOfAChange(t *testing.T) {
	a, b := loc("us/a"), loc("us/b")
	topology := func(revision uint64, rateA, rateB float64) *isobar.Topology {
		network, err := isobar.NewNetwork(nil)
		if err != nil {
			t.Fatal(err)
		}
		top := &isobar.Topology{Network: network, Revision: revision, Services: []isobar.Service{{Name: "checkout", Localities: []isobar.ServiceLocality{
			{Locality: a, MaxRate: rateA, Concurrency: 20, Endpoints: []isobar.Endpoint{{Address: "10.0.0.1:80"}}},
			{Locality: b, MaxRate: rateB, Concurrency: 20, Endpoints: []isobar.Endpoint{{Address: "10.0.1.1:80"}}},
		}}}}
		top.Normalize()
		return top
	}
	snap := &load.Snapshot{At: t0, Services: []load.ServiceLoad{{Name: "checkout", Coverage: 1, Covered: true, Sources: []load.SourceLoad{
		{Source: a, Demand: 600, Raw: 600, Nodes: 3}, {Source: b, Demand: 600, Raw: 600, Nodes: 3},
	}}}}
	var before *plan.Plan
	for tick := range 20 {
		in := plan.Input{Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: topology(1, 1000, 1000), Load: snap, Previous: before, Version: uint64(tick + 1)}
		var err error
		if before, err = plan.Next(in); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name         string
		rateA, rateB float64
		want         []string // parts of the risks
	}{
		{"more", 2000, 1000, nil},
		{"too little for all", 100, 1000, []string{"checkout: us/a is used to ", "after the first tick"}},
		{"too little anywhere", 100, 100, []string{"checkout: us/a is used to 600.0% after the first tick and later, above"}},
		{"nothing changes", 1000, 1000, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := plan.NewPreview(&plan.Turn{
				Now: t0.Add(time.Hour), Interval: 5 * time.Second, Previous: before, Topology: topology(2, tt.rateA, tt.rateB), Version: before.Version + 1,
			}, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for more := true; more && err == nil; {
				more, err = p.Step()
			}
			if err != nil {
				t.Fatal(err)
			}
			d := p.Difference()
			var told []string
			for _, r := range d.Risks {
				told = append(told, r.Text)
			}
			text := strings.Join(told, "\n")
			if (len(told) > 0) != (len(tt.want) > 0) {
				t.Errorf("told %q", text)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %q", want, text)
				}
			}
		})
	}
}
