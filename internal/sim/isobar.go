package sim

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// isobarLoop is the server's control loop, in virtual time. Services that do not
// call each other have nothing to do with each other, so a large fleet is
// planned in several parts at a time; the result is the same.
type isobarLoop struct {
	idle

	w      *world
	shards []*shard
	record *recording // nil = none
}

// shard is some of the services with a loop of their own.
type shard struct {
	w        *world
	services []*service
	topology *isobar.Topology
	decider  *plan.Decider
	plan     *plan.Plan
	windows  []load.StreamWindow // that arrived since the last tick; used again
	err      error
}

// leastShard is how many services make a part of its own worth while.
const leastShard = 32

func newIsobar(w *world) (balancer, error) {
	n := max(1, min(runtime.GOMAXPROCS(0), len(w.services)/leastShard))
	if slices.ContainsFunc(w.services, func(s *service) bool { return len(s.calls) > 0 }) {
		n = 1
	}
	return newLoop(w, n), nil
}

// newLoop makes a loop that plans in so many parts.
func newLoop(w *world, n int) *isobarLoop {
	w.reports = true
	b := &isobarLoop{w: w}
	told := w.sc.told()
	for i := range n {
		from, to := i*len(w.services)/n, (i+1)*len(w.services)/n
		b.shards = append(b.shards, &shard{
			w: w, services: w.services[from:to], decider: plan.NewDecider(w.sc.Interval, nil, startTime),
			topology: &isobar.Topology{
				Revision: told.Revision, Network: told.Network, Services: told.Services[from:to],
			},
		})
	}
	return b
}

// health carries the current weights over to changed health at once.
func (b *isobarLoop) health(now time.Duration) error {
	return b.each(now, func(s *shard, t *plan.Turn) (*plan.Plan, error) {
		b.record.reapply(s, t)
		return s.decider.Reapply(t)
	})
}

func (b *isobarLoop) tick(now time.Duration) error {
	return b.each(now, func(s *shard, t *plan.Turn) (*plan.Plan, error) {
		s.windows = collect(s.services, now, s.windows)
		t.Windows = s.windows
		b.record.tick(s, t)
		return s.decider.Tick(t)
	})
}

// each takes a decision in all shards, and publishes it.
func (b *isobarLoop) each(now time.Duration, decide func(*shard, *plan.Turn) (*plan.Plan, error)) error {
	var wait sync.WaitGroup
	for _, s := range b.shards[1:] {
		wait.Go(func() { s.decide(now, decide) })
	}
	before := b.shards[0].plan
	b.shards[0].decide(now, decide)
	wait.Wait()
	all := []error{b.record.decided(b.shards[0], before, now)}
	for _, s := range b.shards {
		all = append(all, s.err)
	}
	return errors.Join(all...)
}

func (s *shard) decide(now time.Duration, decide func(*shard, *plan.Turn) (*plan.Plan, error)) {
	t := &plan.Turn{
		Now: startTime.Add(now), Interval: s.w.sc.Interval, Subscribed: subscribed(s.services, now),
		Topology: s.topology, Health: s.w.known, Previous: s.plan, Version: 1,
	}
	t.Ages, t.Degradation = s.w.sc.ages(s.services, now), s.w.sc.Degradation
	if s.plan != nil {
		t.Version = s.plan.Version + 1
	}
	p, err := decide(s, t)
	if s.err = err; err != nil {
		return
	}
	s.plan = p
	s.w.limit(s.services, p)
	for _, x := range s.services {
		for _, g := range x.groups {
			s.w.publish(g, p.Assignment(x.spec.Name, g.source), now)
		}
	}
}

// subscribed returns the subscriptions of all groups, and since when their clients use the plan.
func subscribed(services []*service, now time.Duration) []load.Subscription {
	var out []load.Subscription
	for _, s := range services {
		for _, g := range s.groups {
			x := load.Subscription{Service: s.spec.Name, Source: g.source, Streams: len(g.clients)}
			if !g.acked.After(startTime.Add(now)) {
				x.AckedAt = g.acked
			}
			out = append(out, x)
		}
	}
	return out
}

// current is the plan of all shards together.
func (b *isobarLoop) current() *plan.Plan {
	if len(b.shards) == 1 {
		return b.shards[0].plan
	}
	first := *b.shards[0].plan
	first.Topology, first.Services, first.Violations = b.shards[0].topology, slices.Clone(first.Services), slices.Clone(first.Violations)
	for _, s := range b.shards[1:] {
		first.Services = append(first.Services, s.plan.Services...)
		first.Violations = append(first.Violations, s.plan.Violations...)
		first.Objective += s.plan.Objective
		first.LowerBound += s.plan.LowerBound
	}
	if first.Objective > 0 {
		first.Gap = (first.Objective - first.LowerBound) / first.Objective
	}
	return &first
}
