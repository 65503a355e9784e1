package sim

import (
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// isobarLoop is the server's control loop, in virtual time.
type isobarLoop struct {
	idle

	w       *world
	decider *plan.Decider
	plan    *plan.Plan
}

func newIsobar(w *world) (balancer, error) {
	w.reports = true
	return &isobarLoop{w: w, decider: plan.NewDecider(w.sc.Interval, nil, startTime)}, nil
}

func (b *isobarLoop) current() *plan.Plan { return b.plan }

// health carries the current weights over to changed health at once.
func (b *isobarLoop) health(now time.Duration) error {
	p, err := b.decider.Rebase(b.turn(now))
	if err != nil {
		return err
	}
	b.publish(p, now)
	return nil
}

func (b *isobarLoop) tick(now time.Duration) error {
	t := b.turn(now)
	t.Windows = b.w.collect(now)
	p, err := b.decider.Tick(t)
	if err != nil {
		return err
	}
	b.publish(p, now)
	return nil
}

func (b *isobarLoop) turn(now time.Duration) *plan.Turn {
	t := &plan.Turn{
		Now: startTime.Add(now), Interval: b.w.sc.Interval, Watched: b.w.watched(now),
		Topology: b.w.sc.Topology, Health: b.w.known, Previous: b.plan, Version: 1,
	}
	if b.plan != nil {
		t.Version = b.plan.Version + 1
	}
	return t
}

// watched tells who watches what, and since when they obey.
func (w *world) watched(now time.Duration) []plan.Watched {
	var out []plan.Watched
	for _, s := range w.services {
		for _, g := range s.groups {
			x := plan.Watched{Service: s.spec.Name, Source: g.source, Streams: len(g.clients)}
			if !g.acked.After(startTime.Add(now)) {
				x.Acked = g.acked
			}
			out = append(out, x)
		}
	}
	return out
}

func (b *isobarLoop) publish(p *plan.Plan, now time.Duration) {
	b.plan = p
	for _, s := range b.w.services {
		for _, g := range s.groups {
			b.w.publish(g, p.Assignment(s.spec.Name, g.source), now)
		}
	}
}
