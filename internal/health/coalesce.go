package health

import (
	"maps"
	"slices"
	"time"
)

const (
	freePushes = 3 // within a tick, before a service's changes are gathered
	quietTicks = 3 // without a change, after which they no longer are
)

// Coalescer says when a change of a service's health may be pushed: at once,
// but after 3 pushes within a tick only once per tick, until the service has
// been quiet for 3 ticks. So a single failure is known at once and flapping
// endpoints cost a bounded number of pushes.
type Coalescer struct {
	tick     time.Duration
	services map[string]*pushes
}

// pushes is the state of one service.
type pushes struct {
	last      [freePushes]time.Time // newest first
	changed   time.Time             // last
	gathering bool
	waiting   bool // a change has not been pushed
}

// NewCoalescer makes a coalescer; tick is the time between two decisions of
// the planner.
func NewCoalescer(tick time.Duration) *Coalescer {
	return &Coalescer{tick: tick, services: map[string]*pushes{}}
}

// Due records a change of a service's health and reports whether to push it now. If not, Ready
// returns the service when it is time.
func (c *Coalescer) Due(now time.Time, service string) bool {
	p := c.services[service]
	if p == nil {
		p = &pushes{}
		c.services[service] = p
	}
	p.calm(now, c.tick)
	p.changed = now
	third := p.last[freePushes-1]
	if !p.gathering && !third.IsZero() && now.Sub(third) < c.tick {
		p.gathering = true
	}
	if p.gathering && now.Sub(p.last[0]) < c.tick {
		p.waiting = true
		return false
	}
	p.push(now)
	return true
}

// Ready returns the services with a change that waited and is due now, sorted,
// and notes them as pushed.
func (c *Coalescer) Ready(now time.Time) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		p := c.services[name]
		if p.waiting && now.Sub(p.last[0]) >= c.tick {
			p.push(now)
			out = append(out, name)
		}
		if p.calm(now, c.tick); !p.waiting && !p.gathering && now.Sub(p.last[0]) >= c.tick {
			delete(c.services, name) // nothing is left to remember
		}
	}
	return out
}

// Next tells when Ready will have something; false if nothing waits.
func (c *Coalescer) Next() (time.Time, bool) {
	var next time.Time
	//isobar:sorted the earliest of times does not depend on the order
	for _, p := range c.services {
		if due := p.last[0].Add(c.tick); p.waiting && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next, !next.IsZero()
}

func (p *pushes) push(now time.Time) {
	copy(p.last[1:], p.last[:])
	p.last[0] = now
	p.waiting = false
}

// calm stops gathering after enough quiet.
func (p *pushes) calm(now time.Time, tick time.Duration) {
	if p.gathering && !p.waiting && now.Sub(p.changed) >= quietTicks*tick {
		p.gathering = false
	}
}
