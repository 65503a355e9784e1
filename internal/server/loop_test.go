package server_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestLoopSettlesAfterAStep is the closed loop on real gRPC streams in virtual
// time: one zone goes from 60% to 120% of its ceiling, with part of that load
// coming from a zone without endpoints, of which 60 points have to move. Within
// 10 ticks (plus the push delay) of the arrival of the first complete window
// that shows the step, shares stand within a point of the solver's target for
// three ticks, without overshoot.
func TestLoopSettlesAfterAStep(t *testing.T) {
	for reports := range 4 {
		for pushes := range 4 {
			t.Run(fmt.Sprintf("reports %d, pushes %d", reports, pushes), func(t *testing.T) {
				inWorld(t, configuration(t), func(w *world) {
					stepAndSettle(w, time.Duration(reports)*interval, time.Duration(pushes)*interval)
				})
			})
		}
	}
}

func stepAndSettle(w *world, reportDelay, pushDelay time.Duration) {
	t := w.t
	delayed := func(o *fleet.AgentOptions) { o.ReportDelay, o.PushDelay = reportDelay, pushDelay }
	stepAt := time.Now().Add(150 * time.Second)
	step := func(now time.Time) float64 {
		if now.Before(stepAt) {
			return 213
		}
		return 693
	}
	agents := clients("us/c", 3, constant(267), delayed)
	agents = append(agents, clients("us/a", 3, step, delayed)...)
	agents = append(agents, clients("us/b", 3, constant(300), delayed)...)
	agents = append(agents, clients("eu/a", 3, constant(300), delayed)...)
	agents = append(agents, clients("eu/b", 3, constant(300), delayed)...)
	w.start(agents...)
	var before *plan.Plan
	for before = w.tick(); time.Now().Before(stepAt); before = w.tick() {
		noViolations(t, before)
	}
	// The first window wholly after the step begins at most one interval after
	// it, and arrives after the report delay.
	deadline := stepAt.Add(2*interval + reportDelay + 10*interval + pushDelay)
	var plans []*plan.Plan
	for time.Now().Before(deadline.Add(20 * interval)) {
		p := w.tick()
		noViolations(t, p)
		plans = append(plans, p)
	}
	final := plans[len(plans)-1]
	if moved := apart(before, final); moved < 55 {
		t.Errorf("the step moved %.1f points, want about 60", moved)
	}
	good, settled := 0, false
	for _, p := range plans {
		if worst := beyond(before, p, final); worst > 5 {
			t.Errorf("overshoot of %.1f points at %v", worst, p.Made.Sub(stepAt))
		}
		if offTarget(p) <= 1 && apart(p, final) <= 1 {
			good++
		} else {
			good = 0
		}
		settled = settled || (good >= 3 && !p.Made.Add(-2*interval).After(deadline))
	}
	if !settled {
		t.Errorf("not settled by %v after the step", deadline.Sub(stepAt))
	}
}

func noViolations(t *testing.T, p *plan.Plan) {
	t.Helper()
	for _, v := range p.Violations {
		t.Errorf("plan %d broke %s: %s", p.Version, v.Rule, v.Text)
	}
}

// shares lists published shares and targets in a fixed order.
func shares(p *plan.Plan) (published, target []float64) {
	s, _ := p.Service("checkout")
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		published = append(published, r.Shares...)
		if r.Target == nil {
			target = append(target, r.Shares...)
		} else {
			target = append(target, r.Target...)
		}
	}
	return published, target
}

// offTarget is the largest distance of a share from what the solver wants,
// points.
func offTarget(p *plan.Plan) float64 {
	published, target := shares(p)
	return largest(published, target)
}

// apart is the largest difference of a share between two plans, points.
func apart(p, q *plan.Plan) float64 {
	a, _ := shares(p)
	b, _ := shares(q)
	return largest(a, b)
}

func largest(a, b []float64) float64 {
	if len(a) != len(b) {
		return 100
	}
	worst := 0.0
	for i := range a {
		worst = max(worst, 100*math.Abs(a[i]-b[i]))
	}
	return worst
}

// beyond is how far a share lies past both its final value and its present
// target, seen from where it was before the step, points.
func beyond(before, p, final *plan.Plan) float64 {
	b, _ := shares(before)
	f, _ := shares(final)
	s, target := shares(p)
	worst := 0.0
	for i := range s {
		if b[i] <= f[i] {
			worst = max(worst, 100*(s[i]-max(f[i], target[i])))
		} else {
			worst = max(worst, 100*(min(f[i], target[i])-s[i]))
		}
	}
	return worst
}
