package sim

import (
	"time"
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

	longest time.Duration // no ejection lasts longer; 0 = all do
	// failing is the part of at least so many requests in an interval that ejects, too;
	// 0 = none does.
	failing float64
	volume  int
	served  bool // it is that of the cluster that Isobar serves
}

// ejecting is a policy whose clients leave endpoints on their own.
type ejecting interface {
	// reroute makes the route of a client again after an ejection, or the end of one.
	reroute(c *client)
	// outliers is how a client finds the endpoints that it leaves.
	outliers(c *client) Ejection
}

// ejection is what a client has against an endpoint.
type ejection struct {
	failures int // in a row
	out      bool
	since    float64 // seconds, of the ejection
	times    int     // ejections, less one for each interval since the last

	requests, failed int // in this interval
}

// available reports whether a client may send to an endpoint, as far as it knows.
func (c *client) available(e int) bool {
	if c.ejections != nil && c.ejections[e].out {
		return false
	}
	return c.blind || c.population.group.service.endpoints[e].usable
}

// eject lets clients leave endpoints on their own from now on.
func (w *world) eject(b balancer) {
	x, ok := b.(ejecting)
	if !ok || w.requests == nil {
		return
	}
	for _, c := range w.clients {
		c.outlier = x.outliers(c)
		if c.outlier.Consecutive > 0 {
			w.ejecting, c.blind = x, !c.outlier.served
			c.ejections = make([]ejection, len(c.population.group.service.endpoints))
		}
	}
}

// judge takes in how a request at an endpoint ended, at a moment in seconds.
func (w *world) judge(c *client, endpoint int, at float64, ok bool) {
	if c.ejections == nil {
		return
	}
	x := &c.ejections[endpoint]
	x.requests++
	if x.failures++; ok {
		x.failures = 0
	} else {
		x.failed++
	}
	if !x.out && x.failures >= c.outlier.Consecutive {
		x.leave(at)
		w.ejecting.reroute(c)
	}
}

// leave begins an ejection.
func (x *ejection) leave(at float64) { *x = ejection{out: true, since: at, times: x.times + 1} }

// readmit ends ejections that have lasted long enough, and begins those that an interval
// shows. Each client looks at moments of its own.
func (w *world) readmit() {
	if w.ejecting == nil {
		return
	}
	for _, c := range w.clients {
		every := c.outlier.Interval
		if c.ejections == nil || (w.now+time.Duration(draw(w.sc.Seed, drawEjection, c.id)*float64(every)))%every >= w.step {
			continue
		}
		changed := false
		for e := range c.ejections {
			if c.ejections[e].interval(&c.outlier, w.now.Seconds()) {
				changed = true
			}
		}
		if changed {
			w.ejecting.reroute(c)
		}
	}
}

// interval ends an interval, and reports whether an ejection ended or began.
func (x *ejection) interval(by *Ejection, now float64) bool {
	failed := by.failing > 0 && x.requests >= by.volume && float64(x.failed) >= by.failing*float64(x.requests)
	x.requests, x.failed = 0, 0
	length := time.Duration(x.times) * by.Base
	if by.longest > 0 {
		length = min(length, by.longest)
	}
	switch {
	case !x.out:
		x.times = max(0, x.times-1)
		if failed {
			x.leave(now)
		}
		return failed
	case now-x.since >= length.Seconds():
		x.out, x.failures = false, 0
		return true
	}
	return false
}
