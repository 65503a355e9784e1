package plan_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// other is a plan that goes its own way beside one that is measured.
type other struct {
	t    *testing.T
	top  *isobar.Topology
	plan *plan.Plan
}

// follow decides what was measured under the other topology; it begins with the
// first plan that it sees.
func (o *other) follow(p *plan.Plan) {
	o.t.Helper()
	if o.plan == nil {
		o.plan = p
		return
	}
	turn := plan.Turn{
		Now: p.Made, Interval: 5 * time.Second, Topology: o.top, Health: health.NewTable(nil),
		Previous: o.plan, Version: o.plan.Version + 1,
		Watched: []plan.Watched{{Service: "checkout", Source: loc("us/a"), Streams: 3}},
	}
	if o.top == nil {
		turn.Topology = p.Topology
	}
	next, err := turn.Replan(p)
	if err != nil {
		o.t.Fatal(err)
	}
	o.plan = next
}

func (o *other) service() *plan.Service {
	s, _ := o.plan.Service("checkout")
	return s
}

// TestReplanDampsAsItWasDamped: oscillations in the other plan are found and damped
// by the same rules, and let go after the same time.
func TestReplanDampsAsItWasDamped(t *testing.T) {
	o, damped, calm := &other{t: t}, 0, 0
	oscillating(t, 260, 1.5, func(p *plan.Plan) {
		o.follow(p)
		is, _ := p.Service("checkout")
		if a, b := is.Damping, o.service().Damping; a.Level != b.Level || a.Left != b.Left || a.Found != b.Found || a.String() != b.String() {
			t.Fatalf("plan %d: damped %+v, want %+v", p.Version, *b, *a)
		}
		if is.Damping.Level > 0 {
			damped++
		} else if is.Damping.Found > 0 {
			calm++
		}
	})
	if damped < 60 || calm < 10 {
		t.Errorf("%d ticks damped, %d calm after that: nothing is compared", damped, calm)
	}
}

// TestReplanLetsGoOfDamping: damping of before the change ends in the other plan,
// too, although nothing oscillates there.
func TestReplanLetsGoOfDamping(t *testing.T) {
	var o *other
	oscillating(t, 200, 1.5, func(p *plan.Plan) {
		if s, _ := p.Service("checkout"); o == nil && s.Damping.Level > 0 {
			top := *p.Topology
			top.Services = append([]isobar.Service(nil), top.Services...)
			top.Services[0].Policy = isobar.PolicyNearest
			o = &other{t: t, top: &top}
		}
		if o != nil {
			o.follow(p)
		}
	})
	if d := o.service().Damping; d.Level != 0 || d.Left != 0 || d.Found != 1 {
		t.Errorf("after 200 ticks %+v", *d)
	}
}

// TestReplanIsAsFarAsItWas: mode auto goes forward and back where it went when
// the load was measured; without it, the other plan would stay where it began.
func TestReplanIsAsFarAsItWas(t *testing.T) {
	f := autoFleet(t)
	f.tick()
	same, bounded := &other{t: t}, &other{t: t}
	top := *f.top
	top.Services = append([]isobar.Service(nil), top.Services...)
	top.Services[0].Promote.Until = isobar.ModeBounded
	bounded.top = &top
	seen := map[isobar.Mode]int{}
	for i := range 16 * windowTicks {
		if i == 12*windowTicks {
			f.land = disobey
		}
		f.tick()
		same.follow(f.plan)
		bounded.follow(f.plan)
		mode := f.service().Mode()
		seen[mode]++
		if got := same.service().Mode(); got != mode {
			t.Fatalf("tick %d: %s, want %s", i, got, mode)
		}
		if change, ok := plan.Changed(f.plan, same.plan, plan.Origin{}); ok {
			t.Fatalf("tick %d: other shares under the same configuration: %+v", i, change)
		}
		if got := bounded.service().Mode(); got != mode && (got != isobar.ModeBounded || mode != isobar.ModeFull) {
			t.Fatalf("tick %d: until bounded: %s beside %s", i, got, mode)
		}
	}
	if len(seen) != 3 {
		t.Errorf("modes that were served: %v", seen)
	}
}
