package plan_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// FuzzSaved restores a plan from saved state that may be damaged in any way,
// with its pauses, and decides on top of it: what is published keeps all rules.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"version":7,"reserved":10007,"made":"2030-01-01T00:00:00Z","paused":[{"service":"checkout"}],"services":[{"name":"checkout","drop":2,"sites":["us/a","us/b"],"prices":[1],"limits":[{"capacity":-1,"scale":0}],"sources":[{"source":"us/a","demand":1e300,"shares":[0.5,0.5],"below":[7],"tiers":[[{"site":9,"weight":4294967295}]]},{"source":"us/a","demand":-1,"shares":[]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var saved plan.Saved
		if json.Unmarshal(data, &saved) != nil || saved.Version > math.MaxUint64/2 {
			return
		}
		top := threeZones(t)
		p, err := plan.Restore(&saved, top, health.Table{}, t0, saved.Version+1)
		if err != nil {
			return // said, and not served
		}
		sound(t, p)
		next, err := plan.Next(plan.Input{
			Now: t0.Add(5 * time.Second), Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1,
			Load: demand(t0.Add(5*time.Second), "checkout", map[string]float64{"us/a": 500}),
		})
		if err != nil {
			t.Fatal(err)
		}
		sound(t, next)
		if _, err := json.Marshal(next.Save()); err != nil {
			t.Error(err)
		}
	})
}

// sound checks what clients would be told.
func sound(t *testing.T, p *plan.Plan) {
	t.Helper()
	for _, s := range p.Services {
		for i := range s.Result.Sources {
			src := &s.Result.Sources[i]
			sum := 0.0
			for _, share := range src.Shares {
				if math.IsNaN(share) || share < 0 || share > 1 {
					t.Errorf("%v: shares %v", src.Source, src.Shares)
				}
				sum += share
			}
			if math.Abs(sum-1) > 1e-3 {
				t.Errorf("%v: the shares are %v together", src.Source, sum)
			}
			if a := src.Assignment; a == nil || len(a.Priorities) == 0 || len(a.Priorities[0]) == 0 {
				t.Errorf("%v: nothing is assigned", src.Source)
			}
		}
	}
}

// FuzzHistory takes up a history that may be damaged in any way, and goes on
// with it.
func FuzzHistory(f *testing.F) {
	f.Add([]byte(`[{"number":1,"changes":[{"version":3},{"version":4}]},{"number":2,"changes":[{"version":5}]}]`), uint64(5), uint64(5))
	f.Add([]byte(`[{"number":18446744073709551615,"changes":[{"version":18446744073709551615}]},{"number":0}]`), uint64(math.MaxUint64), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, version, last uint64) {
		var pages []plan.Page
		if json.Unmarshal(data, &pages) != nil {
			return
		}
		saved := &plan.Saved{Version: version, LastChange: last}
		h := plan.NewHistory(pages, saved)
		before := h.Changes("")
		for i := 1; i < len(before); i++ {
			if before[i].Version >= before[i-1].Version {
				t.Fatalf("change %d follows %d", before[i-1].Version, before[i].Version)
			}
		}
		if version >= math.MaxUint64-1 {
			return
		}
		page := h.Add(plan.Change{Version: version + 1})
		if len(h.Changes("")) == 0 || len(page.Changes) == 0 {
			t.Error("what was added is not there")
		}
		if _, err := json.Marshal(page); err != nil {
			t.Error(err)
		}
	})
}
