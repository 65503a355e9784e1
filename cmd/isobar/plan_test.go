package main

import (
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestPlanVerdictOnLatency: a change that makes requests slower is not one by which nothing
// gets worse.
func TestPlanVerdictOnLatency(t *testing.T) {
	for name, tt := range map[string]struct {
		change  string
		latency plan.Three
		want    string // "" = nothing gets worse
	}{
		"faster":           {plan.ChangeChanged, plan.Three{Before: 20, First: 15, Settled: 12}, ""},
		"by 4%":            {plan.ChangeChanged, plan.Three{Before: 100, First: 104, Settled: 104}, ""},
		"by 0.9 ms":        {plan.ChangeChanged, plan.Three{Before: 2, First: 2.9, Settled: 2.9}, ""},
		"in the end":       {plan.ChangeChanged, plan.Three{Before: 5, First: 5, Settled: 60}, "checkout: mean latency rises from 5.00 ms to 60.00 ms\n"},
		"more and more":    {plan.ChangeChanged, plan.Three{Before: 5, First: 10, Settled: 60}, "from 5.00 ms to 10.00 ms after the first tick and 60.00 ms once settled\n"},
		"at first":         {plan.ChangeChanged, plan.Three{Before: 5, First: 10, Settled: 4}, "from 5.00 ms to 10.00 ms after the first tick, and is 4.00 ms once settled\n"},
		"at once":          {plan.ChangeChanged, plan.Three{Before: 5, First: 10, Settled: 10}, "from 5.00 ms to 10.00 ms\n"},
		"of a new service": {plan.ChangeNew, plan.Three{First: 10, Settled: 10}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			p := &admin.Previewed{Difference: plan.Difference{Services: []plan.ServiceDifference{{Service: "checkout", Change: tt.change, Latency: tt.latency}}}}
			p.Risks = p.Slower()
			writePlanVerdict(&b, p)
			got := b.String()
			if tt.want == "" && !strings.HasPrefix(got, "verdict: nothing gets worse") {
				t.Errorf("got %s", got)
			}
			if tt.want != "" && (!strings.HasPrefix(got, "verdict: review before applying: 1 thing gets worse\n") || !strings.Contains(got, tt.want)) {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
}
