package dns

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// maxRunning is how many names are looked up at once.
const maxRunning = 64

// outcome is what a lookup gave.
type outcome struct {
	lookup Lookup
	result result
}

// Run resolves until ctx ends, saves what is known and returns nil.
func (p *Provider) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		p.follow(ctx)
		return nil
	})
	g.Go(func() error {
		p.saver.Run(ctx, p.metrics.saveErrors)
		return nil
	})
	return g.Wait()
}

// follow looks up what is due.
func (p *Provider) follow(ctx context.Context) {
	outcomes := make(chan outcome, maxRunning) // nobody waits to deliver
	var lookups sync.WaitGroup
	defer lookups.Wait()
	running := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			p.take(nil) // what was refused may fit now
		case o := <-outcomes:
			batch := append(drained(outcomes), o)
			running -= len(batch)
			p.take(batch)
		case <-timer.C:
		}
		due, next := p.next(maxRunning - running)
		for _, d := range due {
			running++
			lookups.Go(func() { outcomes <- outcome{d.lookup, d.ask.resolve(ctx, d.lookup, &d.before)} })
		}
		timer.Reset(next)
	}
}

// drained takes what is there.
func drained(outcomes <-chan outcome) (out []outcome) {
	for {
		select {
		case o := <-outcomes:
			out = append(out, o)
		default:
			return out
		}
	}
}

// dueLookup is a name to ask for now.
type dueLookup struct {
	lookup Lookup
	before result
	ask    *asking
}

// next returns up to so many names that are due, releases what has been held for
// long enough, and tells when to come back.
func (p *Provider) next(most int) (due []dueLookup, wait time.Duration) {
	const never = time.Hour
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil {
		return nil, never
	}
	now := time.Now()
	p.release(now)
	wait = never
	if at, ok := p.table.nextRelease(p.cfg.EmptyHold); ok {
		wait = max(0, at.Sub(now))
	}
	ask := &asking{resolver: p.resolver, servers: p.cfg.Servers, timeout: p.cfg.Timeout}
	var err error
	if len(ask.servers) == 0 {
		ask.servers, err = p.system.list()
	}
	for _, n := range p.table.names {
		switch left := n.due.Sub(now); {
		case n.asking:
		case left > 0:
			wait = min(wait, left)
		case err != nil:
			p.takeOne(n, &result{err: err}, now)
			wait = min(wait, max(0, n.due.Sub(now)))
		case len(due) < most: // else the next outcome brings us back
			n.asking = true
			due = append(due, dueLookup{n.Lookup, before(n), ask})
		}
	}
	if err != nil {
		p.show()
	}
	return due, wait
}

// before is what the last lookup gave, with the endpoints that are in force.
func before(n *name) result {
	return result{endpoints: n.endpoints, hosts: n.last.hosts}
}

// take puts outcomes in force.
func (p *Provider) take(batch []outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil {
		return
	}
	now := time.Now()
	changed := map[*name]bool{}
	for i := range batch {
		n := p.table.find(batch[i].lookup)
		if n == nil {
			continue // it is not configured any more
		}
		if p.takeOne(n, &batch[i].result, now) {
			changed[n] = true
		}
	}
	p.put(changed)
	p.release(now)
	p.show()
}

// takeOne takes the result of one lookup and logs what is new. p.mu is held.
func (p *Provider) takeOne(n *name, r *result, now time.Time) (changed bool) {
	was := *n
	changed = n.take(r, p.cfg.MinTTL, now)
	switch {
	case n.failure != "" && was.failure == "":
		p.warn("a name is not resolved; its last endpoints stay", "name", n.Name, "error", n.failure)
	case n.failure == "" && was.failure != "":
		p.opts.Log.Info("a DNS name resolves again", "name", n.Name)
	}
	if n.emptySince.Equal(now) {
		p.warn("a name has no records any more; its endpoints stay for now", "name", n.Name, "endpoints", len(n.endpoints))
	}
	if n.last.leftOut > 0 && n.last.leftOut != was.last.leftOut {
		p.warn("records are left out", "name", n.Name, "records", n.last.leftOut, "first", n.last.reason)
	}
	return changed
}

// release lets go of names that have been empty for long enough. p.mu is held.
func (p *Provider) release(now time.Time) {
	emptied := p.table.release(p.cfg.EmptyHold, now)
	if len(emptied) == 0 {
		return
	}
	changed := map[*name]bool{}
	for _, n := range emptied {
		changed[n] = true
		p.warn("a name has no endpoints any more, as DNS has said for long enough", "name", n.Name, "hold", p.cfg.EmptyHold)
	}
	p.put(changed)
	p.show()
}

// put hands over the services that have one of these names, and those that are
// complete now. One that the registry refuses stays as it was. p.mu is held.
func (p *Provider) put(changed map[*name]bool) {
	services := p.table.using(changed)
	if len(services) == 0 {
		return
	}
	list := make([]isobar.Service, len(services))
	for i, s := range services {
		list[i] = s.compose()
	}
	err := p.opts.Registry.PutListed(list)
	for i, s := range services {
		one := err
		if err != nil && len(services) > 1 {
			one = p.opts.Registry.PutListed(list[i : i+1])
		}
		if one == nil {
			s.handed, s.refused, s.taken, s.inForce = true, "", true, list[i].Localities
			continue
		}
		before := s.refused
		s.handed, s.refused = false, keep.Short(one.Error())
		if s.refused != before {
			p.warn("the endpoints that DNS lists for a service are refused; the previous ones stay", "service", s.Settings.Name, "error", s.refused)
		}
	}
	p.saver.Changed()
}
