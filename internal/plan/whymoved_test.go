package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/plan"
)

// TestHistorySaysWhatSetAMoveOff: a line of the history names the demand or the capacity
// that differs, then what limits the move; of a failure it names the failure.
func TestHistorySaysWhatSetAMoveOff(t *testing.T) {
	l := &loop{t: t, top: threeZones(t), now: t0, decider: plan.NewDecider(interval, nil, t0)}
	l.turn(l.decider.Rebase)
	why := func(step func()) string {
		t.Helper()
		before := l.plan
		step()
		c, ok := plan.Changed(before, l.plan, plan.Origin{})
		if !ok || len(c.Services) != 1 {
			t.Fatalf("no share moved: %+v", c)
		}
		return c.Services[0].Reason
	}
	for range 10 {
		l.tick(100, false)
	}
	got := why(func() { l.tick(520, false) })
	for _, part := range []string{"demand from us/a rose from 300 to 1096 requests/s; ", "moved toward us/b, of "} {
		if !strings.Contains(got, part) {
			t.Errorf("after a step of demand: %q, want %q", got, part)
		}
	}
	for range 20 {
		l.tick(520, false)
	}
	slow := *l.top
	slow.Services = slices.Clone(l.top.Services)
	slow.Services[0].Localities = slices.Clone(l.top.Services[0].Localities)
	for i := range slow.Services[0].Localities {
		if s := &slow.Services[0].Localities[i]; s.Locality == loc("us/a") {
			s.MaxRate = 500
		}
	}
	slow.Revision++
	l.top = &slow
	if got := why(func() { l.tick(520, false) }); !strings.HasPrefix(got, "capacity of us/a fell from 1000 to 500 requests/s") {
		t.Errorf("with half of the capacity: %q", got)
	}
	for range 20 {
		l.tick(520, false)
	}
	// A failure is told in place of what it does to capacity.
	if got := why(func() { l.tick(520, true) }); !strings.Contains(got, "moved off us/a") || strings.Contains(got, "capacity") {
		t.Errorf("a locality out of reach: %q", got)
	}
}
