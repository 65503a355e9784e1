package lrs

import (
	"math"
	"time"
)

// How often a client may report, in the long run and at once. Real ones report
// once in an interval and when they stop; what has waited while a connection
// hung comes at once, and so does what waits for a server that stood still.
const (
	reportsPerInterval = 4
	defaultBurst       = 64

	// A client beyond its pace is read slowly, so that its transport fills up
	// and it has to wait: 64 times in an interval, or every second where that is
	// more often. Then what is ignored costs next to nothing.
	pausesPerInterval = 64
	maxPause          = time.Second
)

// pace is a token bucket for the reports of a client, as the time at which it
// will be full again.
type pace struct{ full time.Time }

// take takes a token out of a bucket of burst tokens that get one more after
// each stretch of time; it tells false if there is none.
func (p *pace) take(now time.Time, each time.Duration, burst int) bool {
	if p.full.Before(now) {
		p.full = now
	}
	if p.full.Sub(now) > time.Duration(burst-1)*each {
		return false
	}
	p.full = p.full.Add(each)
	return true
}

// excessive tells whether a report comes beyond what the client was asked for,
// so that it is to be ignored. That is counted, and logged when it begins.
func (st *stream) excessive(now time.Time) bool {
	s := st.server
	if s.opts.ReportBurst == math.MaxInt {
		return false
	}
	st.mu.Lock()
	interval := st.asks()
	ok := st.pace.take(now, interval/reportsPerInterval, s.opts.ReportBurst)
	if !ok {
		st.excess++
		st.exceeded = now
	}
	st.mu.Unlock()
	if ok {
		return false
	}
	s.metrics.excess.Inc()
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("a client reports load far more often than it was asked to; what is too much is ignored", "node", st.node.ID,
			"locality", st.node.Locality.String(), "address", st.peer, "interval", interval, "skipped_lines", skipped)
	}
	return true
}

// asks gives the interval that the client was told, or will be; the caller
// holds the lock.
func (st *stream) asks() time.Duration {
	if st.interval > 0 {
		return st.interval
	}
	return st.server.wanted().interval
}

// pause waits before more is read of a client beyond its pace.
func (st *stream) pause() {
	st.mu.Lock()
	d := min(maxPause, st.asks()/pausesPerInterval)
	st.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-st.grpc.Context().Done():
	}
}
