package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// Ejection lets each client leave endpoints by what it sees itself, as Envoy's outlier
// detection by consecutive failures does with max_ejection_percent 100. It needs single
// requests, and concerns the policies that proxies follow alone. Their clients have no
// health checks then: they know of an endpoint that fails only by their requests.
//
// Source: Envoy, "Outlier detection", consecutive_5xx, interval, base_ejection_time.
type Ejection struct {
	Consecutive int           // failures in a row that eject an endpoint; 0 = clients eject none
	Interval    time.Duration // between the moments at which endpoints come back
	Base        time.Duration // how long the first ejection lasts; the nth lasts n times as long
}

// ejecting is a policy whose clients leave endpoints on their own.
type ejecting interface {
	// reroute makes the route of a client again after an ejection, or the end of one.
	reroute(c *client)
}

// ejection is what a client has against an endpoint.
type ejection struct {
	failures int // in a row
	out      bool
	since    float64 // seconds, of the ejection
	times    int     // ejections, less one for each interval since the last
}

// available reports whether a client may send to an endpoint, as far as it knows.
func (c *client) available(e int) bool {
	if c.ejections != nil {
		return !c.ejections[e].out
	}
	return c.population.group.service.endpoints[e].usable
}

// eject lets clients leave endpoints on their own from now on.
func (w *world) eject(b balancer) {
	x, ok := b.(ejecting)
	if !ok || w.requests == nil || w.sc.Ejection.Consecutive <= 0 {
		return
	}
	w.ejecting = x
	for _, c := range w.clients {
		c.ejections = make([]ejection, len(c.population.group.service.endpoints))
	}
}

// judge takes in how a request at an endpoint ended, at a moment in seconds.
func (w *world) judge(c *client, endpoint int, at float64, ok bool) {
	if c.ejections == nil {
		return
	}
	x := &c.ejections[endpoint]
	if x.failures++; ok {
		x.failures = 0
	}
	if x.out || x.failures < w.sc.Ejection.Consecutive {
		return
	}
	*x = ejection{out: true, since: at, times: x.times + 1}
	w.ejecting.reroute(c)
}

// readmit ends ejections that have lasted long enough. Each client looks at moments of its own.
func (w *world) readmit() {
	if w.ejecting == nil {
		return
	}
	every := w.sc.Ejection.Interval
	for _, c := range w.clients {
		phase := time.Duration(draw(w.sc.Seed, drawEjection, c.id) * float64(every))
		if (w.now+phase)%every >= w.step {
			continue
		}
		back := false
		for e := range c.ejections {
			x := &c.ejections[e]
			switch {
			case !x.out:
				x.times = max(0, x.times-1)
			case w.now.Seconds()-x.since >= float64(x.times)*w.sc.Ejection.Base.Seconds():
				x.out, x.failures, back = false, 0, true
			}
		}
		if back {
			w.ejecting.reroute(c)
		}
	}
}

// seenBy is a site as a client sees it after its ejections.
func (s *service) seenBy(c *client, i int) *isobar.EndpointGroup {
	out := s.endpointGroup(i)
	for j := range out.Endpoints {
		out.Endpoints[j].Health = isobar.Healthy
		if !c.available(s.sites[i].first + j) {
			out.Endpoints[j].Health = isobar.Unhealthy
		}
	}
	return out
}
