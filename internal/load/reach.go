package load

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// record adds a round to the pair's open window and closes it when it holds enough. The share may
// have changed during the round: missing requests are compared with the smallest share, landed
// ones with the largest.
func (p *pair) record(now time.Time, share span, landed, failed, total float64) {
	if share.low <= 0 || (!p.barred.IsZero() && share.high > share.low*probeChange) {
		return // clients came in or left meanwhile: any number would do
	}
	if p.misses(share.low*total, landed, share.high*total) {
		// A small share fills its window slowly: requests that landed before no more were
		// observed must not count now.
		p.planned, p.most, p.landed, p.total = 0, 0, 0, 0
	}
	p.planned += share.low * total
	p.most += share.high * total
	p.landed += landed
	p.total += total
	if !p.barred.IsZero() && p.probe(now, landed, failed) {
		return
	}
	if p.planned < enoughRequests {
		return
	}
	stake := p.planned >= barShare*p.total
	p.fraction, p.judged = p.landed/p.planned, now
	switch {
	case p.landed >= landsAtAll*p.most:
		p.good, p.bad, p.works = p.good+1, 0, now
	case p.landed >= landsAtAll*p.planned: // it depends on which shares were used
	case stake || !p.barred.IsZero():
		p.good, p.bad = 0, p.bad+1
	default: // too little at stake for a verdict
		p.good = 0
	}
	p.planned, p.most, p.landed, p.total = 0, 0, 0, 0
}

// probe counts the reports in which the probe of a barred pair arrives, and
// reports whether this one was. Successes can't be chance, so it takes few.
func (p *pair) probe(now time.Time, landed, failed float64) bool {
	if failed > deadShare*landed {
		p.good = 0
		return false
	}
	if landed < 1 || p.landed < p.most/2 {
		return false
	}
	p.good, p.bad, p.works, p.fraction, p.judged = p.good+1, 0, now, p.landed/p.planned, now
	p.planned, p.most, p.landed, p.total = 0, 0, 0, 0
	return true
}

// probeChange is how far the share of a barred pair may change in a round: a bar reduces it to
// the probe, and requests in transit say nothing about the probe.
const probeChange = 2.0

// misses counts the missing requests since the last landed one, and reports whether they have
// just become too many for chance.
func (p *pair) misses(least, landed, most float64) bool {
	if landed > 0 && landed >= landsAtAll*most {
		p.missed = 0
		return false
	}
	before := p.missed
	p.missed += least
	return before < enoughProbes && p.missed >= enoughProbes
}

// lands reports whether requests were seen to succeed recently and still do.
func (s *serviceAdherence) lands(p *pair) bool {
	return !p.failing() && p.missed < enoughProbes && s.fresh(p.works)
}

// failing reports whether the newest window did not land.
func (p *pair) failing() bool { return p.bad > 0 }

// agrees reports whether the source has seen enough to call the locality unreachable.
func (p *pair) agrees() bool { return !p.barred.IsZero() || p.bad >= verdictWindows }

// decide makes and lifts bars, then looks at whole localities. All sources
// have been booked before.
func (s *serviceAdherence) decide(l *ServiceLoad) {
	s.judgeOutages(l)
	for _, src := range s.sources {
		for _, p := range src.pairs {
			s.lift(src, p)
		}
	}
	for _, src := range s.sources {
		for _, p := range src.pairs {
			if p.barred.IsZero() && s.cutOff(src, p) {
				p.barred, p.found, p.good = s.now, p.fraction, 0
			}
		}
	}
	for _, at := range s.localities() {
		s.reach(at)
	}
}

// cutOff reports whether a source should leave a locality: its requests do not arrive there, and
// neither the service nor too much load is the cause.
func (s *serviceAdherence) cutOff(src *sourceEvidence, p *pair) bool {
	windows := verdictWindows
	if !p.lifted.IsZero() {
		windows = 1 // it was a moment ago
	}
	if p.bad < windows || src.nodes < barNodes || !s.contrast(src, p) {
		return false
	}
	o := s.outage(p.locality)
	if !s.elsewhere(o) {
		return false
	}
	return s.worksFor(src, p.locality) || !s.overloaded(o) || (o.trend.windows > 0 && o.trend.fraction >= 1 && p.bad >= fullWindows)
}

// lift takes a bar away when the probe lands, or when no probe can tell any
// more: the locality left the service, the source fell silent, or no share goes
// there because its endpoints take no traffic.
func (s *serviceAdherence) lift(src *sourceEvidence, p *pair) {
	if p.barred.IsZero() {
		s.widen(p)
		return
	}
	long := s.now.Add(-scale(s.interval, dropIntervals))
	switch o := s.outage(p.locality); {
	case p.good >= verdictWindows:
		p.barred, p.open, p.lifted = time.Time{}, openFirst, s.now
		if o.agreed && o.dead() {
			s.reopen(o)
		}
	case s.left(p.locality) || src.sent.Before(long) || p.seen.Before(long):
		p.barred, p.bad = time.Time{}, 0
	}
}

// widen gives a pair that works again twice the part of its share, report by
// report.
func (s *serviceAdherence) widen(p *pair) {
	age := s.now.Sub(p.lifted)
	switch {
	case p.lifted.IsZero():
	case p.open < 1 && age >= s.interval*3/4 && !p.failing() && p.trend.fraction <= deadShare:
		p.open, p.lifted = min(1, 2*p.open), s.now
	case p.open >= 1 && age > scale(s.interval, calmIntervals):
		p.lifted = time.Time{}
	}
}

// left reports whether a locality is no longer part of the service.
func (s *serviceAdherence) left(l isobar.Locality) bool {
	_, found := slices.BinarySearchFunc(s.sites, l, func(x Site, l isobar.Locality) int { return x.Locality.Compare(l) })
	return len(s.sites) > 0 && !found
}

// contrast reports whether failures in one locality are evidence about that locality, and not
// about the service or the source as a whole: requests succeed elsewhere or succeeded here
// before, and there is another locality that is not failing too.
func (s *serviceAdherence) contrast(src *sourceEvidence, at *pair) bool {
	worked := !at.works.IsZero()
	for _, other := range s.sources {
		for _, p := range other.pairs {
			worked = worked || (p.locality != at.locality && s.fresh(p.works))
		}
	}
	if !worked {
		return false
	}
	return slices.ContainsFunc(s.localities(), func(l isobar.Locality) bool {
		if l == at.locality || s.failing(l) {
			return false
		}
		p := src.find(l)
		return p == nil || (p.barred.IsZero() && !p.failing())
	})
}

// failing reports whether requests to a locality fail from everywhere.
func (s *serviceAdherence) failing(l isobar.Locality) bool {
	fails := false
	for _, src := range s.sources {
		p := src.find(l)
		if p == nil {
			continue
		}
		if s.lands(p) {
			return false
		}
		fails = fails || p.failing()
	}
	return fails
}

func (s *serviceAdherence) fresh(at time.Time) bool {
	return !at.IsZero() && s.now.Sub(at) <= scale(s.interval, staleIntervals)
}

// localities lists where the service is known to be, sorted.
func (s *serviceAdherence) localities() []isobar.Locality {
	n := len(s.sites)
	for _, src := range s.sources {
		n += len(src.pairs)
	}
	out := make([]isobar.Locality, 0, n)
	for i := range s.sites {
		out = append(out, s.sites[i].Locality)
	}
	for _, src := range s.sources {
		for _, p := range src.pairs {
			out = append(out, p.locality)
		}
	}
	slices.SortFunc(out, isobar.Locality.Compare)
	return slices.Compact(out)
}

// reach decides whether any source can reach a locality. A locality is given up when every source
// with a stake in it agrees and none lands there. One source of two nodes cannot take it from
// others: they would have to look themselves.
func (s *serviceAdherence) reach(l isobar.Locality) {
	agreeing, nodes, others := 0, 0, 0
	var newest time.Time
	for _, src := range s.sources {
		p := src.find(l)
		switch {
		case p != nil && p.agrees():
			agreeing++
			nodes += src.nodes
			newest = later(newest, p.barred)
		case p != nil && s.dissents(src, p):
			s.clear(l)
			return
		case src.sends:
			others++
		}
	}
	if newest.IsZero() { // no source is barred from it
		s.clear(l)
		return
	}
	o := s.outage(l)
	if o.dead() || !newest.After(o.ended) {
		return
	}
	if agreeing > 1 || nodes > barNodes || others == 0 {
		o.kill(s.now, true)
	}
}

// dissents reports whether a source that does not agree prevents the verdict: it lands there, or
// it has a stake and may still report.
func (s *serviceAdherence) dissents(src *sourceEvidence, p *pair) bool {
	if s.lands(p) {
		return true
	}
	if p.staked.IsZero() || !src.sends {
		return false
	}
	// With too little traffic to judge by it abstains in the end.
	return s.fresh(p.staked) || s.fresh(p.judged)
}

// clear reverts the common verdict of the sources.
func (s *serviceAdherence) clear(l isobar.Locality) {
	if o := s.findOutage(l); o != nil && o.agreed && o.dead() {
		s.reopen(o)
	}
}
