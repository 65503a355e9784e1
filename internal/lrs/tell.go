package lrs

import (
	"math/rand/v2"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// teller tells one client what to report.
type teller struct {
	stream   *stream
	told     *settings        // nil before the first
	changed  <-chan struct{}  // closes when there may be something to tell
	farewell <-chan time.Time // when a client that has to come back is sent away
}

// look holds what is wanted against what the client was told, and tells it
// what it has to know.
func (t *teller) look() error {
	st := t.stream
	now := st.server.wanted()
	want := now.settings
	t.changed = now.changed
	switch {
	case !want.sayable(st.form): // the client waits, or goes on with what it has
		return nil
	case t.told == nil:
		return t.tell(want, toldFirst)
	case st.once:
		switch {
		case !want.misses(t.told, &st.node):
			t.farewell = nil
		case t.farewell == nil:
			// Spread over an interval, so that they don't come back in one
			// herd. Further changes don't put it off.
			t.farewell = time.After(rand.N(want.interval)) //nolint:gosec // no secret
		}
		return nil
	case !want.differs(t.told, &st.node, st.form):
		return nil
	}
	return t.tell(want, toldAgain)
}

// tell sends a configuration.
func (t *teller) tell(want *settings, kind string) error {
	t.told = want
	t.stream.asked(want.interval, time.Now())
	t.stream.server.metrics.told.WithLabelValues(kind).Inc()
	return t.stream.apart(func() error { return t.stream.grpc.SendMsg(want.response(&t.stream.node, t.stream.form)) })
}

// asked notes that the client is asked for reports at an interval.
func (st *stream) asked(interval time.Duration, now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	first := st.interval == 0
	st.interval = interval
	if st.form != rpc.V2017 {
		return
	}
	st.clock.told = now
	if first { // it may have waited for long until there was something to report on
		st.window.Opened = now
	}
}

// clock measures what the reports of a client cover that does not tell: one of
// 2017. It counts anew at each response.
type clock struct {
	told     time.Time // when the newest response was sent; zero before the first
	reported time.Time // where the newest report ends; zero before the first
}

// measure gives a report the length of time that it covers, if that is known.
// The report after a response is due one interval after it: what comes much
// sooner was under way when the response was sent, and covers the time before.
func (c *clock) measure(r *load.Report, interval time.Duration) {
	from := c.reported
	end := r.Arrived
	if c.told.After(from) {
		if from.IsZero() || end.Sub(c.told) >= interval/2 {
			from = c.told
		} else {
			end = c.told
		}
	}
	if from.IsZero() {
		return
	}
	c.reported = end
	r.ByArrival = true
	for i := range r.Services {
		if r.Services[i].Interval == 0 {
			r.Services[i].Interval = max(0, end.Sub(from))
		}
	}
}
