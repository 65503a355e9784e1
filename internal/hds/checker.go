package hds

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// silentIntervals is after how many intervals without a message a checker
// counts as silent.
const silentIntervals = 3

// checker is one connected checker. Its node, id, account, stream and perturb are
// written before it is shared.
type checker struct {
	hello   convert.CheckerHello // mu guards all of it but the node
	api     rpc.APIVersion
	id      string
	perturb time.Duration // added to the interval, see perturbations
	peer    string        // address
	origin  string        // of its requests, if it polls, see [Server.origin]; guarded by the server's lock
	account string        // that it counts under, "" for none
	since   time.Time
	polling bool
	stream  *stream // nil for one that polls

	wake    chan struct{} // capacity 1: its designation may have changed
	evicted chan struct{} // closed when another stream took its identity

	sent sentWork

	mu       sync.Mutex // guards what follows
	reported reportState
	lastSeen time.Time // arrival of its newest message
	last     time.Time // arrival of its newest report
	reports  uint64
	rejected uint64
	reason   string
	interval time.Duration // as told
	pace     rpc.Pace      // of its polls
	news     []string      // services that are new or changed since it last reported, sorted
	told     time.Time     // when the newest of them was sent; zero for none
	quiet    time.Time     // until when it is told nothing, unless it reports before; zero for never
	waiting  bool          // there is something to tell it then
}

func newChecker(hello convert.CheckerHello, api rpc.APIVersion, peer string, now time.Time) *checker {
	return &checker{
		hello: hello, api: api, peer: peer, since: now, lastSeen: now,
		wake: make(chan struct{}, 1), evicted: make(chan struct{}),
	}
}

func (c *checker) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // it will see the newest assignments anyway
	}
}

// seen notes that a message came. The caller holds the lock.
func (c *checker) seen(now time.Time) {
	c.lastSeen = now
	c.quiet = time.Time{}
	c.news, c.told = nil, time.Time{}
	if c.waiting {
		c.waiting = false
		c.wakeUp()
	}
}

// hold keeps the checker from being told more until it has reported, or should
// have: each specifier restarts Envoy's wait for the next report, so many in a
// row would silence it.
func (c *checker) hold(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = now.Add(c.interval + c.interval/2)
}

// held returns how long the checker must not be told anything; what there is to
// tell is asked for again when it may be.
func (c *checker) held(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := max(0, c.quiet.Sub(now))
	c.waiting = wait > 0
	return wait
}

func (c *checker) silent(now time.Time, interval time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.lastSeen) > silentIntervals*interval
}

func (c *checker) collect(newest *assignments, out []health.Report) []health.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported.collect(c.id, newest, out)
}

// fresh counts what was not collected yet.
func (c *checker) fresh() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported.fresh()
}

func (c *checker) describe() Checker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Checker{
		Checker: health.Checker{
			ID: c.id, NodeID: c.hello.Node.ID, Locality: c.hello.Node.Locality,
			Protocols: c.hello.Protocols, MaxEndpoints: c.hello.MaxEndpoints, Since: c.since, LastSeen: c.lastSeen,
		},
		APIVersion: c.api.String(), UserAgent: c.hello.Node.UserAgent, Address: c.peer, Polling: c.polling, Designated: len(c.reported.slots),
		Interval: c.interval, LastReport: c.last, Reports: c.reports, Rejected: c.rejected, LastReason: c.reason,
	}
}

// sentClusters returns the clusters that the checker may hold. If it reconnects, they are
// drained: their specifier may have ended it.
func (c *checker) sentClusters() map[string]*healthv3.ClusterHealthCheck {
	c.sent.mu.Lock()
	defer c.sent.mu.Unlock()
	out := make(map[string]*healthv3.ClusterHealthCheck, len(c.sent.clusters)+len(c.sent.draining))
	for name := range c.sent.draining {
		out[name] = convert.EmptyClusterHealthCheck(name)
	}
	for name := range c.sent.clusters {
		out[name] = convert.EmptyClusterHealthCheck(name)
	}
	return out
}

// message is a specifier that is due.
type message struct {
	specifier proto.Message // in the checker's form
	news      bool          // it differs from the last one
	again     time.Time     // when to look again for draining clusters, zero for never
}

// prepare makes the specifier that the checker should have now, and lets it
// report on what stands there.
func (s *Server) prepare(c *checker, o *assignments, now time.Time) (message, error) {
	can, interval := c.can(), o.interval+c.perturb
	c.sent.mu.Lock()
	defer c.sent.mu.Unlock()
	if !c.polling && len(c.sent.draining) == 0 && c.sent.basis.holds(o, c.id, can, interval) {
		c.agree(o)
		return message{}, nil
	}
	c.sent.basis = nil
	w := o.work(c.id, can)
	s.leftOut(c, &w)
	gone, again := c.sent.drained(w.clusters, now, o.interval)
	spec := convert.HealthCheckSpecifier(slices.Concat(w.clusters, gone), interval)
	if err := convert.CheckSpecifier(spec); err != nil {
		return message{}, err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return message{}, fmt.Errorf("encode the specifier: %w", err)
	}
	told, err := convert.SpecifierIn(c.api, spec)
	if err != nil {
		return message{}, err
	}
	m := message{specifier: told, news: !bytes.Equal(encoded, c.sent.bytes), again: again}
	sums := sumsOf(w.clusters)
	changed := differing(sums, c.sent.sums)
	c.sent.bytes, c.sent.sums = encoded, sums
	c.sent.clusters = make(map[string]*healthv3.ClusterHealthCheck, len(w.clusters))
	for _, cluster := range w.clusters {
		c.sent.clusters[cluster.GetClusterName()] = withoutEndpoints(cluster)
	}
	if len(gone) == 0 && !c.polling {
		c.sent.basis = newBasis(o, c.id, can, interval, sums)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interval = interval
	if len(changed) > 0 {
		c.news, c.told = union(c.news, changed), now
	}
	if m.news {
		// A specifier restarts the wait for the next report: what comes sooner
		// was sent before the specifier arrived.
		c.reported = c.reported.renew(w.slots, now.Add(interval/2))
	}
	c.reported.assigned = o
	return m, nil
}

// agree notes that what the checker was told is what the assignments say.
func (c *checker) agree(o *assignments) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported.assigned = o
}

func (c *checker) can() health.Protocols {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello.Protocols
}

// renew takes a later request of a checker, which may change what it can probe.
func (s *Server) renew(c *checker, r *healthv3.HealthCheckRequest, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	hello, err := c.hello.Changed(r, c.api)
	hello = hello.Bounded(s.opts.EnvoyEndpoints)
	if err != nil {
		return err
	}
	c.seen(now)
	if hello.Protocols == c.hello.Protocols && hello.MaxEndpoints == c.hello.MaxEndpoints {
		return nil
	}
	c.hello.Protocols, c.hello.MaxEndpoints = hello.Protocols, hello.MaxEndpoints
	s.signal()
	c.wakeUp() // what it can't probe any more goes at once, the rest with the next assignments
	return nil
}

// leftOut counts and logs what a checker was designated and can't be sent.
func (s *Server) leftOut(c *checker, w *work) {
	s.metrics.leftOut.WithLabelValues(leftCapability).Add(float64(w.unfit))
	s.metrics.leftOut.WithLabelValues(leftInvalid).Add(float64(w.invalid))
	if w.unfit+w.invalid == 0 {
		return
	}
	if skipped, ok := s.limit.Allow(time.Now()); ok {
		s.log.Warn("a checker can't probe some services; they are not assigned to it", "checker", c.id, "unfit", w.unfit,
			"invalid", w.invalid, "error", w.err, "skipped_lines", skipped)
	}
}

// report applies a report, after its entries have been checked. The error is for
// messages that are too large to look at.
func (s *Server) report(c *checker, r *healthv3.EndpointHealthResponse, now time.Time) error {
	rejected := 0
	reason := ""
	entries, flat, err := convert.HealthEntries(r, func(x convert.HealthRejection) {
		rejected++
		reason = x.Text
		s.metrics.rejected.WithLabelValues(string(x.Code)).Inc()
	})
	if err != nil {
		return err
	}
	o := c.apply(entries, flat, now)
	rejected += o.foreign + o.ambiguous
	if o.sample != "" {
		reason = o.sample
	}
	if rejected > 0 {
		c.blame(rejected, reason)
	}

	s.metrics.reports.Inc()
	s.metrics.former.Add(float64(o.former))
	s.metrics.rejected.WithLabelValues(rejectForeign).Add(float64(o.foreign))
	s.metrics.rejected.WithLabelValues(rejectAmbiguous).Add(float64(o.ambiguous))
	s.metrics.rejected.WithLabelValues(string(convert.RejectMetadata)).Add(float64(o.crowded))
	if o.changed {
		s.signal()
	}
	if rejected > 0 {
		if skipped, ok := s.limit.Allow(now); ok {
			s.log.Warn("ignored entries of a health report", "checker", c.id, "locality", c.hello.Node.Locality.String(),
				"entries", rejected, "reason", reason, "skipped_lines", skipped)
		}
	}
	return nil
}

// apply takes the entries of a report as the checker's newest word.
func (c *checker) apply(entries []convert.HealthEntry, flat bool, now time.Time) outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen(now)
	c.last = now
	c.reports++
	return c.reported.add(entries, flat, now)
}

// blame notes that entries of a report did not count, and why.
func (c *checker) blame(rejected int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejected += uint64(rejected) //nolint:gosec // not negative
	c.reason = reason
}
