package load

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// plan records the shares in force, and forgets localities without any event for keep: their
// names come from clients.
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

// ready reports whether the source's reports hold nothing that was judged before.
func (s *sourceEvidence) ready(l *SourceLoad, interval time.Duration) bool {
	if l.Since.IsZero() {
		return false
	}
	// Successive windows touch; arrival times, from which they are computed,
	// jitter.
	return s.until.IsZero() || !l.Since.Before(s.until.Add(-interval/4))
}

// succeed notes that requests of a service succeed at all.
func (s *serviceAdherence) succeed(l *SourceLoad) {
	for i := range l.Landed {
		if l.Landed[i].Succeeded > 0 {
			s.succeeded = s.now
		}
	}
}

// reported returns the evidence about a locality that clients named. It makes none for one that is not of
// the service, and returns nil: clients may name any. See stray, too.
func (s *serviceAdherence) reported(src *sourceEvidence, l isobar.Locality) *pair {
	if s.left(l) {
		return src.find(l)
	}
	return src.pair(l)
}

// judge adds one round of windows, during which the shares were within spans.
func (s *serviceAdherence) judge(src *sourceEvidence, l *SourceLoad, spans []span) {
	now := s.now
	src.until = l.Until
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
		landed, failed := 0.0, 0.0
		if x := findLanded(l.Landed, planned.locality); x != nil {
			_, failed = s.outcome(x, l.Window, 0)
			landed = max(0, x.Issued*seconds-failed)
		}
		src.pair(planned.locality).record(now, planned, landed, failed, total)
	}
	for i := range l.Landed {
		x := &l.Landed[i]
		p := s.reported(src, x.Locality)
		if p == nil {
			continue
		}
		p.failover, p.told = x.Priority > 0, now
		if p.share == 0 && x.Issued-x.Errors >= landsAtAll*max(x.Issued, barShare*issued) {
			p.works, p.missed = now, 0
		}
	}
	src.tally.add(l, spans, seconds, total)
	if src.tally.total >= enoughRequests {
		src.compare()
		src.round = src.tally.round(src.source)
		src.tally = tally{}
	}
}

// weighUnreported looks for load of clients that do not report: application utilization times
// declared capacity, less the landed load.
func (s *serviceAdherence) weighUnreported(l *ServiceLoad) {
	if !l.Covered || s.now.Sub(s.weighed) < s.interval {
		return
	}
	s.weighed = s.now
	var next []excess
	for i := range s.sites {
		site := &s.sites[i]
		j, found := slices.BinarySearchFunc(l.Sites, site.Locality, func(x SiteLoad, l isobar.Locality) int { return x.Locality.Compare(l) })
		if !found || site.Capacity <= 0 {
			continue
		}
		rate := max(0, applicationUtilization(&l.Sites[j])*site.Capacity-l.Sites[j].Issued)
		e := excess{locality: site.Locality, windows: 1, rate: rate, least: overPlan / 2 * site.Capacity}
		if k, had := slices.BinarySearchFunc(s.unreported, site.Locality, func(x excess, l isobar.Locality) int { return x.locality.Compare(l) }); had {
			before := &s.unreported[k]
			e.windows += before.windows
			gain := unreportedGain
			if rate < before.rate {
				gain = unreportedFall
			}
			e.rate = before.rate + (rate-before.rate)*gain
			if before.windows > verdictWindows {
				if e.rate > e.least {
					next = append(next, e)
				}
				continue
			}
		}
		if rate > overPlan*site.Capacity {
			next = append(next, e)
		}
	}
	s.unreported = next
}
