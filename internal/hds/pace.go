package hds

import "time"

// How often a checker may report, in the long run and at once. Real ones report once in an
// interval; what has waited while a connection hung comes at once. Every report counts, since it
// may tell of a failure, so a checker beyond its pace is read slowly instead: its transport fills
// up, and it has to wait.
const (
	reportsPerInterval = 16
	reportBurst        = 64
)

// pace is a token bucket for the messages of a checker, as the time at which it will be
// full again.
type pace struct{ full time.Time }

// take takes a token and returns how long to wait before the next message is read.
func (p *pace) take(now time.Time, interval time.Duration) time.Duration {
	each := interval / reportsPerInterval
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(each)
	// What was taken at a longer interval counts as a full burst of this one at most.
	if most := now.Add((reportBurst + 1) * each); p.full.After(most) {
		p.full = most
	}
	return p.full.Sub(now) - reportBurst*each
}

// slowDown waits after a message of a checker that is beyond its pace.
func (st *stream) slowDown() {
	s, now := st.server, time.Now()
	interval := s.interval()
	wait := st.pace.take(now, interval)
	if wait <= 0 {
		return
	}
	s.metrics.excess.Inc()
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("a checker reports far more often than requested; reading it slowly", "checker", st.checker.id,
			"address", st.peer, "interval", interval, "skipped_lines", skipped)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-st.grpc.Context().Done():
	}
}
