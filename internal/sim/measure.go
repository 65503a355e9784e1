package sim

import (
	"math"
	"time"
)

// Sample is what one tick of a run looked like: means over its steps.
type Sample struct {
	At          time.Duration `json:"-"`
	Seconds     float64       `json:"seconds"`      // since the beginning of the run
	Demand      float64       `json:"demand"`       // requests/s that were sent from outside
	MeanMS      float64       `json:"mean_ms"`      // latency of a request with the calls that it causes
	P99MS       float64       `json:"p99_ms"`       // of single hops
	Fullest     float64       `json:"fullest"`      // utilization of the fullest locality
	Utilization float64       `json:"utilization"`  // mean, by capacity
	CrossRegion float64       `json:"cross_region"` // share of the requests
	Failed      float64       `json:"failed"`       // share of the requests
	Shed        float64       `json:"shed"`         // share of the requests
}

// totals are sums over some time; rates are summed as requests.
type totals struct {
	roots, hops            float64 // requests from outside; all
	latency                float64 // requests x ms
	answered               float64 // hops that got an answer or timed out
	failed, shed           float64
	crossZone, crossRegion float64
	used, capacity         float64 // capacity weighted utilization
	dollars                float64
	moved                  float64 // requests whose clients changed their minds, per look
	seconds                float64
}

// meter measures a run.
type meter struct {
	w        *world
	tick     totals
	all      totals
	tickHist histogram
	hist     histogram
	steps    uint64
	quantile [samplesPerStep]float64

	loads   [][]siteSum // per service and site, in this tick
	fullest float64     // highest mean utilization of a locality over a tick
	sites   [][]siteSum // over the whole run
	samples []Sample
	settle  settling
}

type siteSum struct{ used, capacity float64 }

func newMeter(w *world) *meter {
	m := &meter{w: w}
	for _, s := range w.services {
		m.loads = append(m.loads, make([]siteSum, len(s.sites)))
		m.sites = append(m.sites, make([]siteSum, len(s.sites)))
	}
	return m
}

// step books one step that has just been taken.
func (m *meter) step() {
	m.quantile = exponentialAt(m.steps)
	m.steps++
	length := m.w.step.Seconds()
	m.tick.seconds += length
	for i, s := range m.w.services {
		for _, g := range s.groups {
			for _, p := range g.populations {
				if p.rate > 0 {
					m.population(p, length)
				}
			}
		}
		for j := range s.sites {
			x := &s.sites[j]
			m.loads[i][j].used += x.arrived * length
			m.loads[i][j].capacity += x.capacity * length
		}
	}
}

// population books what became of the requests of one population. Neighbouring
// endpoints of a site that do alike are taken together.
func (m *meter) population(p *population, length float64) {
	g, s := p.group, p.group.service
	sent := p.rate * length
	m.tick.hops += sent
	if p.source != nil {
		m.tick.roots += sent
	}
	m.tick.shed += sent * p.mean.dropped
	m.tick.failed += sent * p.mean.lost
	for i := range s.sites {
		if p.mean.site[i] == 0 {
			continue
		}
		x := &s.sites[i]
		requests := sent * p.mean.site[i]
		m.distance(g, x, requests)
		run, at := 0.0, -1
		for e := x.first; e < x.end; e++ {
			share := p.mean.endpoint[e]
			if share == 0 {
				continue
			}
			if at >= 0 && (s.endpoints[e].stay != s.endpoints[at].stay || s.endpoints[e].ok != s.endpoints[at].ok) {
				m.hop(&s.endpoints[at], g.latency[i], sent*run)
				run = 0
			}
			run += share
			at = e
		}
		if at >= 0 {
			m.hop(&s.endpoints[at], g.latency[i], sent*run)
		}
	}
}

func (m *meter) distance(g *group, x *site, requests float64) {
	price := m.w.sc.Price
	switch {
	case g.source.Region != x.locality.Region:
		m.tick.crossRegion += requests
		m.tick.dollars += requests * price.CrossRegion / 1e6
		m.tick.crossZone += requests
	case g.source.Zone != x.locality.Zone:
		m.tick.crossZone += requests
		m.tick.dollars += requests * price.CrossZone / 1e6
	}
}

// spreadLimit is how many times the time of service the exponential part of the
// time at an endpoint may last; what is beyond it is a backlog that all wait for.
const spreadLimit = 20

// hop books requests that went to one endpoint. Requests to endpoints that are
// down fail at once and count nowhere else; those that time out count with the
// timeout.
func (m *meter) hop(e *endpoint, network, requests float64) {
	m.tick.failed += requests * (1 - e.ok)
	if !e.up || requests <= 0 {
		return
	}
	timeout := 1000 * m.w.timeout()
	m.tick.answered += requests
	m.tick.latency += requests * (network + e.ok*e.stay + (1-e.ok)*timeout)
	spread := min(e.stay, spreadLimit*1000*e.servers/max(e.queue.capacity, 1e-9))
	for _, q := range m.quantile {
		ms := min(e.stay-spread+spread*q, timeout)
		m.tickHist.add(network+ms, requests*e.ok/samplesPerStep)
	}
	if e.ok < 1 {
		m.tickHist.add(network+timeout, requests*(1-e.ok))
	}
}

// endTick closes a tick that ends now.
func (m *meter) endTick(now time.Duration) {
	fullest, used, capacity := 0.0, 0.0, 0.0
	for i := range m.loads {
		for j := range m.loads[i] {
			x := &m.loads[i][j]
			used += x.used
			capacity += x.capacity
			if x.capacity > 0 {
				fullest = max(fullest, x.used/x.capacity)
			}
		}
	}
	t := &m.tick
	t.used, t.capacity = used, capacity
	t.moved = m.settle.look(m.w, now)
	m.samples = append(m.samples, Sample{
		At: now, Seconds: now.Seconds(), Demand: over(t.roots, t.seconds), MeanMS: over(t.latency, t.rootsAnswered()),
		P99MS: m.tickHist.quantile(0.99), Fullest: fullest, Utilization: over(used, capacity),
		CrossRegion: over(t.crossRegion, t.hops), Failed: over(t.failed, t.hops), Shed: over(t.shed, t.hops),
	})
	if now > m.w.sc.Warmup {
		m.all.add(t)
		m.hist.merge(&m.tickHist)
		m.fullest = max(m.fullest, fullest)
		for i := range m.loads {
			for j, x := range m.loads[i] {
				m.sites[i][j].used += x.used
				m.sites[i][j].capacity += x.capacity
			}
		}
	}
	m.tick = totals{}
	m.tickHist = histogram{}
	for i := range m.loads {
		clear(m.loads[i])
	}
}

// rootsAnswered is how many requests from outside the latency is shared by: one
// that is lost on the way has no latency.
func (t *totals) rootsAnswered() float64 {
	if t.hops <= 0 {
		return 0
	}
	return t.roots * t.answered / t.hops
}

func (t *totals) add(o *totals) {
	t.roots += o.roots
	t.hops += o.hops
	t.latency += o.latency
	t.answered += o.answered
	t.failed += o.failed
	t.shed += o.shed
	t.crossZone += o.crossZone
	t.crossRegion += o.crossRegion
	t.used += o.used
	t.capacity += o.capacity
	t.dollars += o.dollars
	t.moved += o.moved
	t.seconds += o.seconds
}

func over(a, b float64) float64 {
	if b <= 0 || math.IsNaN(a) {
		return 0
	}
	return a / b
}
