package sim

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/isobar-xds/isobar/internal/load"
)

// flow lets all clients send for one step, and the endpoints serve.
func (w *world) flow() {
	w.demand()
	w.inParts(func(services []*service) {
		for _, s := range services {
			s.arrive()
			w.serve(s)
			for _, g := range s.groups {
				w.record(g)
			}
		}
	})
}

// inParts does something that concerns each service alone, in a large fleet for
// several of them at a time.
func (w *world) inParts(do func([]*service)) {
	n := w.parts()
	var wait sync.WaitGroup
	for i := 1; i < n; i++ {
		wait.Go(func() { do(w.services[i*len(w.services)/n : (i+1)*len(w.services)/n]) })
	}
	do(w.services[:len(w.services)/n])
	wait.Wait()
}

// parts is how many parts of the services are worth being dealt with at a time.
// Single requests are played one after the other.
func (w *world) parts() int {
	if w.requests != nil {
		return 1
	}
	return max(1, min(runtime.GOMAXPROCS(0), len(w.services)/leastShard))
}

// demand sets the rates of this step. What callers cause follows from what they
// served in the step before.
func (w *world) demand() {
	for _, s := range w.services {
		for i := range s.calls {
			for l, p := range s.calls[i].callers {
				p.rate = min(mostRate, s.calls[i].perRequest*s.sites[l].served)
			}
		}
	}
	for _, s := range w.services {
		for _, g := range s.groups {
			g.rate = 0
			for _, p := range g.populations {
				if p.source != nil {
					p.rate = w.rateOf(p)
				}
				g.rate += p.rate
			}
		}
	}
}

// mostRate bounds what the clients of one source send, requests/s, whatever the
// product of their shapes: it is far beyond any fleet.
const mostRate = 1e10

// noiseSeconds is for how long one draw of noise lasts.
const noiseSeconds = 1

func (w *world) rateOf(p *population) float64 {
	rate := p.source.Demand(w.now)
	if p.source.Noise > 0 {
		second := uint64(w.now.Seconds() / noiseSeconds)
		rate *= 1 + p.source.Noise*normal(w.sc.Seed, drawDemand, p.index, second)
	}
	return max(0, min(rate, mostRate))
}

// arrive adds up what reaches each endpoint.
func (s *service) arrive() {
	for i := range s.endpoints {
		s.endpoints[i].arrived = 0
	}
	for _, g := range s.groups {
		for _, p := range g.populations {
			p.average()
			if p.rate == 0 {
				continue
			}
			for e, share := range p.mean.endpoint {
				if share > 0 {
					s.endpoints[e].arrived += p.rate * share
				}
			}
		}
	}
}

// serve steps the queues.
func (w *world) serve(s *service) {
	length, timeout := w.step.Seconds(), w.timeout()
	var last *endpoint
	for i := range s.sites {
		x := &s.sites[i]
		x.arrived, x.served = 0, 0
		last = nil
		for j := x.first; j < x.end; j++ {
			e := &s.endpoints[j]
			capacity := e.declared * x.factor
			switch {
			case !e.up || capacity <= 0:
				e.ok, e.stay = 0, 0
				continue
			case last != nil && e.like(last):
				e.queue, e.ok, e.stay = last.queue, last.ok, last.stay
			default:
				before := e.queue.present
				e.ok = 1 - e.queue.step(e.arrived, capacity, e.servers, timeout, length)
				e.ok *= 1 - e.failing
				if e.stay = e.queue.stay(capacity, e.servers) + e.slow; e.slow > 0 && e.stay > 1000*timeout {
					e.ok, e.stay = 0, 1000*timeout
				}
				last = e
				e.previous = before
			}
			x.arrived += e.arrived
			x.served += e.arrived * e.ok
		}
		x.utilization = 0
		if x.capacity > 0 {
			x.utilization = x.arrived / x.capacity
		}
		if w.sc.UtilizationNoise > 0 {
			second := uint64(w.now.Seconds() / noiseSeconds)
			x.noise = max(0, 1+w.sc.UtilizationNoise*normal(w.sc.Seed, drawUtilization, uint64(s.index), uint64(i), second)) //nolint:gosec // indices
		}
	}
}

// like reports whether an endpoint of the same site goes through the same step as
// another one that has gone through it.
func (e *endpoint) like(o *endpoint) bool {
	return e.arrived == o.arrived && e.declared == o.declared && e.servers == o.servers && e.up == o.up &&
		e.queue.present == o.previous && e.slow == o.slow && e.failing == o.failing
}

func (w *world) timeout() float64 {
	if w.sc.Timeout > 0 {
		return w.sc.Timeout.Seconds()
	}
	return defaultTimeout.Seconds()
}

// record adds what a group's clients sent in this step to what they will report.
func (w *world) record(g *group) {
	if !w.reports {
		return
	}
	length := w.step.Seconds()
	for _, p := range g.populations {
		each := p.rate / float64(len(p.clients))
		if each == 0 {
			continue
		}
		for _, c := range p.clients {
			c.dropped += each * length * c.route.dropped
			for i, share := range c.route.site {
				k := &c.counts[i]
				if share == 0 {
					k.busy = 0
					continue
				}
				sent := each * length * share
				ok, stay := g.service.outcome(i, c.route, share)
				k.issued += sent
				k.errors += sent * (1 - ok)
				k.busy = each * share * (stay + g.latency[i]) / 1000
				if ok > 0 {
					k.measured += sent * ok
					k.metrics += sent * ok * g.service.reportedUtilization(i)
				}
			}
		}
	}
}

// outcome is what becomes of requests that a route sends to a site: the
// fraction that is served, and how long they stay, ms.
func (s *service) outcome(i int, r *route, share float64) (ok, stay float64) {
	for e := s.sites[i].first; e < s.sites[i].end; e++ {
		x := &s.endpoints[e]
		ok += r.endpoint[e] * x.ok
		stay += r.endpoint[e] * x.stay
	}
	return min(1, ok/share), stay / share
}

// reportedUtilization is what the site's endpoints tell: that of their
// processors, which can't be above 1, with noise.
func (s *service) reportedUtilization(i int) float64 {
	x := &s.sites[i]
	return math.Min(1, x.utilization) * x.noise
}

func (s *service) capacities() {
	for i := range s.sites {
		x := &s.sites[i]
		x.capacity, x.nominal = 0, 0
		for j := x.first; j < x.end; j++ {
			k := s.endpoints[j].declared * x.factor
			x.nominal += k
			if s.endpoints[j].up {
				x.capacity += k
			}
		}
	}
}

// report is what the endpoints of a site tell with so many requests, at a mean
// utilization; nil for nothing.
func (s *service) report(i int, requests uint64, utilization float64) *load.LocalityDetails {
	var out []load.MetricSum
	n := float64(requests)
	if s.spec.ORCA.On {
		out = append(out, load.MetricSum{Name: load.MetricApplication, Requests: requests, Total: n * utilization})
	}
	for _, m := range s.metrics {
		if within(s.sites[i].locality, m.Locality) {
			out = append(out, load.MetricSum{Name: m.Name, Requests: requests, Total: n * (m.AtRest + (m.Full-m.AtRest)*utilization)})
		}
	}
	if out == nil {
		return nil
	}
	slices.SortFunc(out, func(a, b load.MetricSum) int { return strings.Compare(a.Name, b.Name) })
	return &load.LocalityDetails{Metrics: out}
}
