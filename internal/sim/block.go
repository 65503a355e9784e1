package sim

import "sync"

// blockSize is how many services are measured together. It does not depend on
// the number of processors, and blocks are summed up in their order: so sums are
// the same, to the last digit, however many of them are measured at a time.
const blockSize = 32

// block measures some of the services of a run.
type block struct {
	w        *world
	services []*service
	loads    [][]siteSum // of its services and their sites, in this tick
	tick     totals
	hist     histogram
	quantile [samplesPerStep]float64
}

// step books one step that has just been taken.
func (m *meter) step() {
	quantile := exponentialAt(m.steps)
	m.steps++
	var wait sync.WaitGroup
	shards := m.w.parts()
	for i := range shards {
		work := func() {
			for _, b := range m.blocks[i*len(m.blocks)/shards : (i+1)*len(m.blocks)/shards] {
				b.quantile = quantile
				b.step()
			}
		}
		if i < shards-1 {
			wait.Go(work)
		} else {
			work()
		}
	}
	wait.Wait()
}

// sum returns the totals of a tick, and begins the next one.
func (m *meter) sum() (totals, *histogram) {
	var t totals
	var h histogram
	seconds := 0.0
	for _, b := range m.blocks {
		t.add(&b.tick)
		seconds = b.tick.seconds
		h.merge(&b.hist)
		b.tick, b.hist = totals{}, histogram{}
	}
	if r := m.w.requests; r != nil {
		r.take(&t, &h)
	}
	t.seconds = seconds // all of them had the same
	return t, &h
}

func (b *block) step() {
	length := b.w.step.Seconds()
	b.tick.seconds += length
	for i, s := range b.services {
		for _, g := range s.groups {
			for _, p := range g.populations {
				if p.rate > 0 && b.w.requests == nil {
					b.population(p, length)
				}
			}
		}
		for j := range s.sites {
			x := &s.sites[j]
			b.loads[i][j].used += x.arrived * length
			b.loads[i][j].capacity += x.capacity * length
		}
	}
}

// population counts what became of the requests of one population. Neighbouring
// endpoints of a site that do alike are taken together.
func (b *block) population(p *population, length float64) {
	g, s := p.group, p.group.service
	sent := p.rate * length
	b.tick.hops += sent
	if p.source != nil {
		b.tick.roots += sent
	}
	b.tick.shed += sent * p.mean.dropped
	failedBefore := b.tick.failed
	b.tick.failed += sent * p.mean.lost
	for i := range s.sites {
		if p.mean.site[i] == 0 {
			continue
		}
		x := &s.sites[i]
		requests := sent * p.mean.site[i]
		b.distance(g, x, requests)
		run, at := 0.0, -1
		for e := x.first; e < x.end; e++ {
			share := p.mean.endpoint[e]
			if share == 0 {
				continue
			}
			if at >= 0 && (s.endpoints[e].stay != s.endpoints[at].stay || s.endpoints[e].ok != s.endpoints[at].ok) {
				b.hop(&s.endpoints[at], g.latency[i], sent*run)
				run = 0
			}
			run += share
			at = e
		}
		if at >= 0 {
			b.hop(&s.endpoints[at], g.latency[i], sent*run)
		}
	}
	if s.spec.Criticality != nil {
		b.tick.classes[p.class].add(sent, sent*p.mean.dropped, b.tick.failed-failedBefore)
	}
}

func (b *block) distance(g *group, x *site, requests float64) {
	price := b.w.sc.Price
	switch {
	case g.source.Region != x.locality.Region:
		b.tick.crossRegion += requests
		b.tick.dollars += requests * price.CrossRegion / 1e6
		b.tick.crossZone += requests
	case g.source.Zone != x.locality.Zone:
		b.tick.crossZone += requests
		b.tick.dollars += requests * price.CrossZone / 1e6
	}
}

// spreadLimit is how many times the time of service the exponential part of the
// time at an endpoint may last; what is beyond it is a backlog that all wait for.
const spreadLimit = 20

// hop counts requests that went to one endpoint. Requests to endpoints that are
// down fail at once and count nowhere else; those that time out count with the
// timeout.
func (b *block) hop(e *endpoint, network, requests float64) {
	b.tick.failed += requests * (1 - e.ok)
	if !e.up || requests <= 0 {
		return
	}
	timeout := 1000 * b.w.timeout()
	b.tick.answered += requests
	b.tick.latency += requests * (network + e.ok*e.stay + (1-e.ok)*timeout)
	spread := min(e.stay, spreadLimit*1000*e.servers/max(e.queue.capacity, 1e-9))
	for _, q := range b.quantile {
		ms := min(e.stay-spread+spread*q, timeout)
		b.hist.add(network+ms, requests*e.ok/samplesPerStep)
	}
	if e.ok < 1 {
		b.hist.add(network+timeout, requests*(1-e.ok))
	}
}
