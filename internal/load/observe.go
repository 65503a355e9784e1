package load

import (
	"slices"
	"time"
)

// plan takes note of the shares in force, and forgets localities of which
// nothing has been seen for keep: their names come from clients.
func (s *sourceEvidence) plan(now time.Time, planned *PlannedSource, keep time.Duration) {
	for _, p := range s.pairs {
		p.share = 0
	}
	for _, sh := range planned.Shares {
		p := s.pair(sh.Locality)
		p.share = sh.Share
		if sh.Share > 0 {
			p.seen = now
		}
	}
	s.pairs = slices.DeleteFunc(s.pairs, func(p *pair) bool {
		return p.barred.IsZero() && now.Sub(later(p.seen, p.told)) > keep
	})
	for _, p := range s.pairs {
		switch {
		case p.share < barShare:
			p.staked = time.Time{}
		case p.staked.IsZero():
			p.staked = now
		}
	}
}

// ready tells whether the source's reports hold nothing that was judged before.
func (s *sourceEvidence) ready(l *SourceLoad, interval time.Duration) bool {
	if l.Since.IsZero() {
		return false
	}
	// Successive windows touch; arrival times, from which they are computed,
	// jitter.
	return s.until.IsZero() || !l.Since.Before(s.until.Add(-interval/4))
}

// judge books one round of windows, during which the shares were within spans.
func (s *sourceEvidence) judge(now time.Time, l *SourceLoad, spans []span) {
	s.until = l.Until
	issued := 0.0
	for i := range l.Landed {
		issued += l.Landed[i].Issued
	}
	seconds := l.Window.Seconds()
	total := issued * seconds
	if total <= 0 {
		return
	}
	for _, planned := range spans {
		landed := 0.0
		if x := findLanded(l.Landed, planned.locality); x != nil {
			landed = max(0, x.Issued-x.Errors) * seconds
		}
		s.pair(planned.locality).book(now, planned, landed, total)
	}
	for i := range l.Landed {
		x := &l.Landed[i]
		p := s.pair(x.Locality)
		p.failover, p.told = x.Priority > 0, now
		if p.share == 0 && x.Issued-x.Errors >= landsAtAll*max(x.Issued, barShare*issued) {
			p.works, p.missed = now, 0
		}
	}
	s.tally.add(l, spans, seconds, total)
	if s.tally.total >= enoughRequests {
		s.compare()
		s.round = s.tally.round(s.source)
		s.tally = tally{}
	}
}
