package plan_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// A plan is made from the one before, and must not hold on to it: a server
// makes one every few seconds for months.
func TestPlansLetGoOfThoseBefore(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 900, "us/b": 100}
	var before []weak.Pointer[plan.Service]
	var p *plan.Plan
	for i := range 6 {
		in := plan.Input{Now: t0.Add(time.Duration(i) * interval), Topology: top, Previous: p, Version: uint64(i) + 1}
		if in.Trigger = assign.Rebase; i%3 < 2 {
			in.Trigger, in.Load = assign.Tick, demand(in.Now, "checkout", rates)
		}
		next, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		if p != nil && p.Services[0] != next.Services[0] {
			before = append(before, weak.Make(p.Services[0]))
		}
		p = next
	}
	runtime.GC()
	for i, w := range before {
		if w.Value() != nil {
			t.Errorf("the service of plan %d of %d is still there", i+1, len(before)+1)
		}
	}
	runtime.KeepAlive(p)
}
