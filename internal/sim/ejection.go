package sim

import (
	"cmp"
	"slices"
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
	back     float64 // seconds, of the end of the last one
	times    int     // ejections, less one for each interval since the last

	requests, failed int // in this interval
}

// available reports whether a client may send to an endpoint, as far as its main thread knows.
func (c *client) available(e int) bool {
	return (c.ejections == nil || !c.ejections[e].out) && c.knowsUp(e)
}

// knowsUp reports whether a client knows of no failed health check of an endpoint.
func (c *client) knowsUp(e int) bool {
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
			n := len(c.population.group.service.endpoints)
			c.ejections, c.threads = make([]ejection, n), newWorkerThreads(n)
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
		x.leave(&c.outlier, at)
		w.requests.update(c, at, true)
	}
}

// leave begins an ejection. It says nothing about the requests of the interval, which count on.
func (x *ejection) leave(by *Ejection, at float64) {
	x.out, x.since, x.failures = true, at, 0
	if by.longest <= 0 || time.Duration(x.times)*by.Base < by.longest+by.Base {
		x.times++
	}
}

// readmit ends ejections that have lasted long enough, and begins those that an interval
// shows. Each client looks at moments of its own. An endpoint that comes back is judged by the
// interval before, too: where its last requests failed, it is left again at once.
//
// Source: Envoy, outlier_detection_impl.cc, onIntervalTimer.
func (w *world) readmit() {
	if w.ejecting == nil {
		return
	}
	now := w.now.Seconds()
	var order []int
	for _, c := range w.clients {
		every := c.outlier.Interval
		if c.ejections == nil || !w.looks(c, drawEjection, every) {
			continue
		}
		counts := draw(w.sc.Seed, drawInterval, c.id, uint64(w.now)) < shortIntervals //nolint:gosec // since the start
		order = c.order(w.sc.Seed, order[:0])
		for _, e := range order {
			if c.ejections[e].end(&c.outlier, now) {
				w.requests.update(c, now, true) // each is an update of its own
			}
		}
		for _, e := range order {
			if c.ejections[e].interval(&c.outlier, now, counts) {
				w.requests.update(c, now, true)
			}
		}
	}
}

// shortIntervals is how often the interval after the end of an ejection counts as a whole one,
// after which Envoy lowers the multiplier of ejections. Envoy compares the time of the next look with
// the end of the ejection, which is some moments after the look before began, and it measures the time
// between looks with a clock that is up to some milliseconds late (outlier_detection_impl.cc,
// onIntervalTimer; libevent's coarse clock). So it is a matter of chance, the same for all endpoints
// of one look: of 72 endpoints of Envoy 1.40 that were ejected again between the first look and the
// second, 37 had a lower multiplier (its event log of outliers).
const shortIntervals = 0.5

// looks reports whether a client does now what it does at intervals; what is the draw of its
// moment, where clients did not start together.
func (w *world) looks(c *client, what uint64, every time.Duration) bool {
	phase := time.Duration(draw(w.sc.Seed, what, c.id) * float64(every))
	if within := w.sc.StartedWithin; within > 0 {
		started := time.Duration(draw(w.sc.Seed, drawStart)*float64(time.Hour) + draw(w.sc.Seed, drawStart, c.id)*float64(within))
		phase = every - started%every
	}
	return (w.now+phase)%every < w.step
}

// order is the one in which a client looks at its endpoints: that of a hash map, another one
// for each client, and always the same.
func (c *client) order(seed uint64, out []int) []int {
	for e := range c.ejections {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Compare(draw(seed, drawEjection, c.id, uint64(a+1)), draw(seed, drawEjection, c.id, uint64(b+1))) //nolint:gosec // indices
	})
	return out
}

// end ends an ejection that has lasted long enough, and reports whether it did.
func (x *ejection) end(by *Ejection, now float64) bool {
	length := time.Duration(x.times) * by.Base
	if by.longest > 0 {
		length = min(length, by.longest)
	}
	if !x.out || now-x.since < length.Seconds() {
		return false
	}
	x.out, x.back, x.failures = false, now, 0
	return true
}

// interval ends an interval, and reports whether it began an ejection. counts says that the
// interval since an ejection ended is a whole one.
func (x *ejection) interval(by *Ejection, now float64, counts bool) bool {
	failed := by.failing > 0 && x.requests >= by.volume && float64(x.failed) >= by.failing*float64(x.requests)
	x.requests, x.failed = 0, 0
	switch {
	case x.out:
		return false
	case failed:
		x.leave(by, now)
		return true
	case now-x.back > 1.5*by.Interval.Seconds() || now > x.back && counts:
		x.times = max(0, x.times-1)
	}
	return false
}
