package load

import (
	"cmp"
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
	by             *account  // nil = account is empty; see accounts
	former         string    // the account of the stream that it took over, if that is another one
	opened, closed time.Time // closed is zero while it is open
	arrived        time.Time // when the newest report that is booked came; zero before the first
	heard          time.Time // when its newest report came
	// lag is how far reports travel behind their windows, as the first one showed; LRS carries no
	// timestamps.
	lag         time.Duration
	delay       time.Duration // see StreamWindow
	unheard     bool          // see StreamWindow
	period      time.Duration // at which it really reports, smoothed; 0 before the second report
	tellsIssued bool          // it has told requests issued, so 0 means none
	settled     bool          // it has taken over the stream that it replaces
	counted     bool          // its loss has been taken note of
	listed      uint64        // the last merge that knew of it
	flows       []*flow       // sorted by service
}

// Bounds on the values that one stream can claim, in report intervals.
const (
	maxLagIntervals    = 4
	maxPeriodIntervals = 12
)

// unlistedMerges is after how many merges without a word of an open stream it is gone.
const unlistedMerges = 100

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

// freshFor is the age up to which the stream's last report counts as fresh. Reports of a replica
// arrive together: the last one may be as old as a report and such an arrival are apart.
func (s *stream) freshFor(interval time.Duration) time.Duration {
	return scale(s.due(interval), freshIntervals) + s.delay
}

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

func (t *Table) stream(id StreamID) (*stream, bool) {
	i, found := slices.BinarySearchFunc(t.streams, id, func(s *stream, id StreamID) int { return cmp.Compare(s.id, id) })
	if !found {
		return nil, false
	}
	return t.streams[i], true
}

// register records a stream, its opening and its end.
func (t *Table) register(w *StreamWindow) {
	s, known := t.stream(w.Stream)
	if !known {
		s = &stream{id: w.Stream, node: w.Node, account: w.Account, identified: w.Identified, opened: w.Opened}
		i, _ := slices.BinarySearchFunc(t.streams, s.id, func(x *stream, id StreamID) int { return cmp.Compare(x.id, id) })
		t.streams = slices.Insert(t.streams, i, s)
	}
	s.delay, s.unheard = w.Delay, w.Unheard
	if s.arrived.IsZero() {
		s.opened = later(s.opened, w.Opened)
	}
	if counted := later(w.Opened, t.arrivals.started); t.arrivals.firstStream.IsZero() || counted.Before(t.arrivals.firstStream) {
		t.arrivals.firstStream = counted
	}
	if s.closed.IsZero() {
		s.closed = w.Closed
	}
	t.latest = later(t.latest, later(w.Opened, w.Closed))
	for i := range w.Reports {
		s.heard = later(s.heard, w.Reports[i].Arrived)
	}
	t.latest = later(t.latest, s.heard)
	s.listed = t.merges
}

// identity is the part of a client that survives a reconnect. Several clients may share one: node
// ids are often duplicated. Without a certificate no client inherits from a client with one.
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
		case !s.closed.IsZero() || s.unheard || t.latest.Sub(s.heard) > s.freshFor(t.interval):
			if len(s.flows) > 0 {
				orphans[s.identity()] = append(orphans[s.identity()], s)
			}
		case t.latest.Sub(s.opened) > 2*scale(t.interval, holdIntervals):
			s.settled = true // the state of a possible predecessor has faded
		}
		if !s.settled && s.closed.IsZero() {
			heirs = append(heirs, s)
		}
	}
	for _, heir := range heirs {
		list := orphans[heir.identity()]
		for i, old := range slices.Backward(list) { // the newest first
			if t.replaces(heir, old) && t.mayInherit(heir, old) {
				heir.inherit(old)
				heir.settled = true
				orphans[heir.identity()] = slices.Delete(list, i, i+1)
				break
			}
		}
	}
}

// replaces reports whether heir is the reconnect of old: the same client by its identity, and old
// has reported nothing since heir opened, because it is closed or half open.
func (t *Table) replaces(heir, old *stream) bool {
	if old == heir || old.id > heir.id || len(old.flows) == 0 || old.heard.After(heir.opened) {
		return false
	}
	hold := scale(t.interval, holdIntervals)
	if !old.closed.IsZero() {
		return heir.opened.Sub(old.closed) <= hold
	}
	silent := later(heir.heard, heir.opened).Sub(old.heard)
	return old.unheard || silent > old.freshFor(t.interval)
}

// mayInherit reports whether heir may take over the history of old by its name alone. Anyone can show the node.ids
// of others without a certificate, and would count as all clients of a fleet that restarts: an address takes over
// from one other address only, as if that had changed. Clients without a history replace the others nevertheless.
func (t *Table) mayInherit(heir, old *stream) bool {
	if heir.identified || heir.account == "" || heir.account == old.account {
		return true
	}
	return !slices.ContainsFunc(t.streams, func(s *stream) bool {
		return s.account == heir.account && s.former != "" && s.former != old.account
	})
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
	if s.account != old.account {
		s.former = old.account
	}
	s.period = max(s.period, old.period)
	s.tellsIssued = s.tellsIssued || old.tellsIssued
}

// Returned returns the fraction of the connected clients that have reported, 0 to 1, for a table
// without state of an earlier process. It is 0 until three intervals have passed since the first
// client came back: others are about to.
func (t *Table) Returned(now time.Time) float64 {
	if t.arrivals.firstStream.IsZero() || now.Sub(t.arrivals.firstStream) < scale(t.interval, graceIntervals) {
		return 0
	}
	open, reported := 0, 0
	for _, s := range t.streams {
		if !s.closed.IsZero() {
			continue
		}
		open++
		if !s.heard.IsZero() {
			reported++
		}
	}
	if open == 0 {
		return 0
	}
	return float64(reported) / float64(open)
}

// lose records streams that have closed since the last snapshot, and forgets losses that are too
// old to come back.
func (t *Table) lose(now time.Time) {
	old := now.Add(-scale(t.interval, graceIntervals))
	for _, name := range t.names {
		for _, src := range t.services[name].sources {
			src.lost = slices.DeleteFunc(src.lost, func(l loss) bool {
				if l.at.After(old) {
					return false
				}
				src.memory.demand = max(0, src.memory.demand-l.rate)
				return true
			})
		}
	}
	for _, s := range t.streams {
		if s.closed.IsZero() || s.counted || !s.closed.After(old) {
			continue
		}
		s.counted = true
		for _, f := range s.flows {
			if rate := f.window.rate() * f.weight; rate >= negligible {
				f.source.lost = append(f.source.lost, loss{stream: s.id, at: s.closed, rate: rate})
			}
		}
	}
}

// forget drops old state: streams closed for long, flows that faded or went idle, sources and
// services without any.
func (t *Table) forget(now time.Time) {
	hold := scale(t.interval, holdIntervals)
	t.streams = slices.DeleteFunc(t.streams, func(s *stream) bool {
		if s.closed.IsZero() {
			// Its end may have been lost with an overfull collector.
			return len(s.flows) == 0 && t.merges-s.listed > unlistedMerges
		}
		if now.Sub(s.closed) <= hold {
			return false
		}
		for _, f := range s.flows {
			f.source.remove(f)
		}
		s.flows = nil
		return true
	})
	for _, s := range t.streams {
		if s.closed.IsZero() {
			s.flows = slices.DeleteFunc(s.flows, func(f *flow) bool { return f.idle(now, t.interval) })
		}
	}
	t.names = slices.DeleteFunc(t.names, func(name string) bool {
		svc := t.services[name]
		svc.sources = slices.DeleteFunc(svc.sources, func(s *source) bool {
			return len(s.flows) == 0 && len(s.lost) == 0 && s.saved == 0 && s.demand < negligible
		})
		if len(svc.sources) > 0 {
			return false
		}
		delete(t.services, name)
		return true
	})
}
