package load

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// stream is one load reporting stream.
type stream struct {
	id             StreamID
	node           Node
	account        string // see StreamWindow
	identified     bool
	by             *account  // nil = account is empty; see countAccounts
	opened, closed time.Time // closed is zero while it is open
	arrived        time.Time // when the newest report that is booked came; zero before the first
	heard          time.Time // when its newest report came
	// lag is how far reports travel behind the windows they tell of, as the
	// first one showed; LRS carries no timestamps.
	lag         time.Duration
	period      time.Duration // at which it really reports, smoothed; 0 before the second report
	tellsIssued bool          // it has told requests issued, so 0 means none
	settled     bool          // it has taken over what it replaces
	counted     bool          // its loss has been taken note of
	listed      uint64        // the last merge that knew of it
	flows       []*flow       // sorted by service
}

// Bounds on what a stream can make us believe, in report intervals.
const (
	maxLagIntervals    = 4
	maxPeriodIntervals = 12
)

// paced learns the stream's own period: some clients keep an older or a longer
// one than they were asked for.
func (s *stream) paced(gap, interval time.Duration) {
	gap = min(gap, maxPeriodIntervals*interval)
	if s.period == 0 {
		s.period = gap
		return
	}
	s.period = (s.period + gap) / 2
}

// due is the longest time between two reports that is still regular.
func (s *stream) due(interval time.Duration) time.Duration { return max(interval, s.period) }

func (s *stream) find(service string) (int, bool) {
	return slices.BinarySearchFunc(s.flows, service, func(f *flow, n string) int { return strings.Compare(f.source.service.name, n) })
}

// flow finds the stream's flow to a service; nil when there is none.
func (s *stream) flow(svc *service) *flow {
	i, found := s.find(svc.name)
	if !found {
		return nil
	}
	return s.flows[i]
}

func (s *stream) insert(f *flow) {
	i, _ := s.find(f.source.service.name)
	s.flows = slices.Insert(s.flows, i, f)
}

// identity is what a client keeps over a reconnect. Several clients may share
// one: node ids are often duplicated. What a certificate has shown nobody inherits
// without it.
type identity struct {
	id, cluster string
	locality    isobar.Locality
	certificate string // empty without one
}

func (s *stream) identity() identity {
	out := identity{id: s.node.ID, cluster: s.node.Cluster, locality: s.node.Locality}
	if s.identified {
		out.certificate = s.account
	}
	return out
}

// takeOver lets new streams inherit the rates of the ones that they replace, so
// that a reconnect neither loses demand nor counts it twice.
func (t *Table) takeOver() {
	var heirs []*stream
	orphans := map[identity][]*stream{} // each list in order of id
	for _, s := range t.streams {
		switch {
		case !s.closed.IsZero() || t.latest.Sub(s.heard) > scale(s.due(t.interval), freshIntervals):
			if len(s.flows) > 0 {
				orphans[s.identity()] = append(orphans[s.identity()], s)
			}
		case t.latest.Sub(s.opened) > 2*scale(t.interval, holdIntervals):
			s.settled = true // what it might replace has faded
		}
		if !s.settled && s.closed.IsZero() {
			heirs = append(heirs, s)
		}
	}
	for _, heir := range heirs {
		list := orphans[heir.identity()]
		for i, old := range slices.Backward(list) { // the newest first
			if t.replaces(heir, old) {
				heir.inherit(old)
				heir.settled = true
				orphans[heir.identity()] = slices.Delete(list, i, i+1)
				break
			}
		}
	}
}

// replaces tells whether heir is the reconnect of old: the same client by all
// that is known, and old has told nothing since heir opened, because it is
// closed or hangs half open.
func (t *Table) replaces(heir, old *stream) bool {
	if old == heir || old.id > heir.id || len(old.flows) == 0 || old.heard.After(heir.opened) {
		return false
	}
	hold := scale(t.interval, holdIntervals)
	if !old.closed.IsZero() {
		return heir.opened.Sub(old.closed) <= hold
	}
	silent := later(heir.heard, heir.opened).Sub(old.heard)
	return silent > scale(old.due(t.interval), freshIntervals)
}

// inherit moves the flows of old to s. What s has reported itself stands.
func (s *stream) inherit(old *stream) {
	for _, f := range old.flows {
		f.source.remove(f)
		f.source.found(old.id)
		if s.flow(f.source.service) != nil {
			continue
		}
		f.stream, f.own, f.told = s, false, later(s.opened, f.told)
		s.insert(f)
		f.source.insert(f)
	}
	old.flows = nil
	s.period = max(s.period, old.period)
	s.tellsIssued = s.tellsIssued || old.tellsIssued
}
