//go:build !race

package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// watchedLoop is the control loop with somebody who looks over its shoulder:
// every plan is held against the one before it, those of ticks and those that
// only carry weights over. Nothing here asks the plan's own check, and what can
// be taken from the scenario is not taken from the plan.
type watchedLoop struct {
	*isobarLoop

	before *plan.Plan
}

func (l *watchedLoop) health(now time.Duration) error { return l.look(now, l.isobarLoop.health) }
func (l *watchedLoop) tick(now time.Duration) error   { return l.look(now, l.isobarLoop.tick) }

func (l *watchedLoop) look(now time.Duration, decide func(time.Duration) error) error {
	if err := decide(now); err != nil {
		return err
	}
	before, after := l.before, l.current()
	l.before = after
	return soundPlan(before, after, l.w)
}

// soundPlan: the plan's own check found nothing, versions grow, and every
// service is as it should be.
func soundPlan(before, p *plan.Plan, w *world) error {
	for _, v := range p.Violations {
		return fmt.Errorf("%s of %s from %s: %s", v.Rule, v.Service, v.Source, v.Text)
	}
	if before != nil && p.Version <= before.Version {
		return fmt.Errorf("version %d after %d", p.Version, before.Version)
	}
	for _, s := range p.Services {
		last, _ := before.Service(s.Spec.Name)
		if s == last {
			continue // nothing concerned it
		}
		j := newJudgement(last, s, w.known, p.Trigger)
		for _, rule := range []func() error{
			j.answers(w), j.capacities, j.drains, j.drops, j.certificate, j.assignments, j.numbers, j.takeover, j.unfit, j.ceilings, j.steps,
		} {
			if err := rule(); err != nil {
				return fmt.Errorf("%s: %w", s.Spec.Name, err)
			}
		}
	}
	return nil
}

// judgement is what has to be known to judge one service of a plan.
type judgement struct {
	before, now *plan.Service // before is nil for the first
	known       health.Table
	deciding    bool // weights may move
	usable      []int
	fit         []bool
	anyFit      bool
	shrunk      []bool      // lost endpoints since the plan before
	was, is     [][]float64 // per source and site, shares of priority 0; was is nil for a new source
	rate        []float64   // per source, requests/s after drops
}

func newJudgement(before, now *plan.Service, known health.Table, trigger assign.Trigger) *judgement {
	n := len(now.Spec.Localities)
	j := &judgement{
		before: before, now: now, known: known, deciding: trigger == assign.Tick && now.Hold == "",
		usable: make([]int, n), fit: make([]bool, n), shrunk: make([]bool, n),
	}
	for l := range now.Spec.Localities {
		endpoints := now.Spec.Localities[l].Endpoints
		for k := range endpoints {
			if known.Status(now.Spec.Name, &endpoints[k]).Usable() {
				j.usable[l]++
			}
		}
		site := &now.Sites[l]
		j.fit[l] = j.usable[l] > 0 && site.Capacity > 0 && !site.Unreachable && !site.Drained
		j.anyFit = j.anyFit || j.fit[l]
		if before != nil {
			j.shrunk[l] = site.Capacity < before.Sites[l].Capacity && now.Sites[l].Group.Usable() < before.Sites[l].Group.Usable()
		}
	}
	for i := range now.Result.Sources {
		r := &now.Result.Sources[i]
		j.is = append(j.is, j.shares(r.Assignment))
		j.rate = append(j.rate, r.Demand*(1-j.dropOf(i)))
		var was []float64
		if before != nil {
			if b := before.Result.Source(r.Source); b != nil {
				was = j.shares(b.Assignment)
			}
		}
		j.was = append(j.was, was)
	}
	return j
}

// shares are what clients make of priority 0, per locality of the service; nil
// where there is nothing to send to.
func (j *judgement) shares(a *isobar.Assignment) []float64 {
	if len(a.Priorities) == 0 {
		return nil
	}
	out := make([]float64, len(j.usable))
	for _, lw := range a.Priorities[0] {
		l := slices.IndexFunc(j.now.Spec.Localities, func(sl isobar.ServiceLocality) bool { return sl.Locality == lw.Locality })
		out[l] += float64(lw.Weight) / isobar.WeightScale
	}
	return out
}

func (j *judgement) at(l int) isobar.Locality   { return j.now.Spec.Localities[l].Locality }
func (j *judgement) from(i int) isobar.Locality { return j.now.Result.Sources[i].Source }
func (j *judgement) allows(i, l int) bool       { return j.now.Spec.Allows(j.from(i), j.at(l)) }

// barred tells whether a source was seen not to reach a locality.
func (j *judgement) barred(i, l int) bool {
	for _, b := range j.now.Deviations.Barred {
		if b.Source == j.from(i) && b.Locality == j.at(l) {
			return true
		}
	}
	return false
}

// fitFor tells whether a source has fit capacity that it may use.
func (j *judgement) fitFor(i int) bool {
	for l, fit := range j.fit {
		if fit && j.allows(i, l) {
			return true
		}
	}
	return false
}

// answers: whoever watches the service has an answer.
func (j *judgement) answers(w *world) func() error {
	return func() error {
		s, ok := w.find(j.now.Spec.Name)
		if !ok {
			return fmt.Errorf("is not in the scenario")
		}
		for _, g := range s.groups {
			if j.now.Result.Source(g.source) == nil {
				return fmt.Errorf("%s has no answer", g.source)
			}
		}
		return nil
	}
}

// capacities: what a locality may get follows from what is declared and up. Where plans
// use estimates from requests, what is in use moves by a twentieth upwards and 15% downwards
// in a decision at most.
func (j *judgement) capacities() error {
	for l := range j.now.Spec.Localities {
		sl, site := &j.now.Spec.Localities[l], &j.now.Sites[l]
		want := sl.MaxRate * float64(j.usable[l]) / float64(len(sl.Endpoints))
		if site.Unreachable || site.Drained {
			want = 0
		}
		if sl.MaxRate > 0 && want > 0 && j.now.Spec.CapacityTrust.Observed() {
			if err := j.follows(l, site.Capacity/want); err != nil {
				return err
			}
			continue
		}
		if sl.MaxRate > 0 && math.Abs(site.Capacity-want) > 1e-6*want {
			return fmt.Errorf("%s counts with %v requests/s, want %v", sl.Locality, site.Capacity, want)
		}
	}
	return nil
}

// follows: what is in use of a capacity changes slowly, as a part of what is declared. A
// locality that nothing was sent to counts with what was known of it.
func (j *judgement) follows(l int, part float64) error {
	sl, was := &j.now.Spec.Localities[l], 1.0
	if math.Abs(part-1) < 1e-9 { // such as after a long time without requests
		return nil
	}
	if j.before != nil {
		before := &j.before.Sites[l]
		up := before.Group.Usable()
		if up == 0 || before.Capacity <= 0 {
			return nil
		}
		was = before.Capacity / (sl.MaxRate * float64(up) / float64(len(sl.Endpoints)))
	}
	if part > was*1.05+1e-6 && part > 1+1e-6 || part < was*0.85-1e-6 {
		return fmt.Errorf("%s counts with %.3f of what is declared, before with %.3f", sl.Locality, part, was)
	}
	return nil
}

// drains: of the localities that could serve at most half are taken out of use.
func (j *judgement) drains() error {
	could, out := 0, 0
	for l, n := range j.usable {
		if n > 0 {
			could++
			if s := &j.now.Sites[l]; s.Unreachable || s.Drained {
				out++
			}
		}
	}
	if 2*out > could {
		return fmt.Errorf("%d of %d localities that could serve are out of use", out, could)
	}
	return nil
}

// certificate: what was solved serves all demand but what it says, and no bound
// is above what it bounds.
func (j *judgement) certificate() error {
	p, s := j.now.Problem, j.now.Solution
	if p == nil || s == nil {
		return nil
	}
	for i, d := range p.Demand {
		sum := s.Shed[i] + s.Unreachable[i]
		for _, x := range s.Flows[i] {
			if !(x >= 0) {
				return fmt.Errorf("a flow of %v from %s", x, j.now.Solved[i])
			}
			sum += x
		}
		if math.Abs(sum-d) > 1e-6*d {
			return fmt.Errorf("%v of %v requests/s from %s are accounted for", sum, d, j.now.Solved[i])
		}
	}
	if !j.now.Joint && s.LowerBound > s.Objective*(1+1e-9) {
		return fmt.Errorf("a bound of %v for an objective of %v", s.LowerBound, s.Objective)
	}
	return nil
}
