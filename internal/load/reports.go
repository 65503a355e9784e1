package load

import (
	"slices"
	"strings"
	"time"
)

// addReport adds one report of a stream.
func (t *Table) addReport(s *stream, r *Report) {
	first := s.arrived.IsZero()
	from := s.arrived
	if first {
		from = s.opened
		s.lag = min(max(0, r.Arrived.Sub(s.opened)-t.interval), maxLagIntervals*t.interval)
	}
	gap := max(0, r.Arrived.Sub(from))
	if !first {
		s.paced(gap, t.interval)
	}
	s.arrived = later(r.Arrived, from)
	if t.arrivals.firstReport.IsZero() {
		t.arrivals.firstReport = s.arrived
	}
	order := serviceOrder(r.Services)
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && order[j].Service == order[i].Service {
			j++
		}
		t.addService(s, order[i:j], r, gap, first)
		i = j
	}
	if s.node.Agent == AgentGRPC {
		t.addIdle(s, order, r.Refused, r.Arrived, gap)
	}
}

// serviceOrder lists the entries of a report by service, those of one service
// in their own order.
func serviceOrder(services []ServiceReport) []*ServiceReport {
	order := make([]*ServiceReport, len(services))
	for i := range services {
		order[i] = &services[i]
	}
	slices.SortStableFunc(order, func(a, b *ServiceReport) int { return strings.Compare(a.Service, b.Service) })
	return order
}

// addService makes the flow's new window of all entries for one service, if there is memory for it.
func (t *Table) addService(s *stream, entries []*ServiceReport, r *Report, gap time.Duration, first bool) {
	svc := t.service(entries[0].Service)
	f := s.flow(svc)
	for _, e := range entries {
		for i := range e.Localities {
			s.tellsIssued = s.tellsIssued || e.Localities[i].HasIssued
		}
	}
	var before *window
	if f != nil && f.own {
		before = &f.window
	}
	w := window{sites: t.siteMemory(len(entries[0].Localities))}
	long, byArrival := false, r.ByArrival
	for _, e := range entries {
		length := e.Interval
		if length <= 0 {
			length, byArrival = gap, true
		}
		// The first window of a clock that started before the stream did: its
		// mean is true, or its start is absurd; either way it says little about
		// now.
		long = long || (first && e.Interval > gap+t.interval)
		w.add(e, max(length, minLength), before, s.tellsIssued)
	}
	w.finish()
	if long && f != nil && f.windows > 0 {
		f.told = r.Arrived // the inherited value is nearer to the truth
		return
	}
	if f = t.hold(f, s, svc, &w); f == nil {
		return
	}
	t.spare = append(t.spare, f.window.sites)
	f.take(w, byArrival, r.Arrived, t.interval)
	if long {
		f.news = 0
	}
}

// hold returns the flow of a stream to a service whose newest window is w: f, or a new one where that is
// nil. It is nil if there is no memory for that. A flow that is there stays: if there is no memory for the
// whole window, it gets as much of it as it had before.
func (t *Table) hold(f *flow, s *stream, svc *service, w *window) *flow {
	if f == nil {
		return t.newFlow(s, svc, flowBytes+max(leastWindow, w.bytes()))
	}
	before := 0
	if w.length < t.interval/2 { // it is prolonged by the one before; see extend
		before = f.window.bytes()
	}
	bytes := flowBytes + max(leastWindow, before+w.bytes())
	switch more := bytes - f.bytes; {
	case more <= 0:
		t.memory.add(s.address(), more)
	case !t.memory.take(s.address(), more):
		t.memory.refused++
		w.shrink(f.bytes - flowBytes - before)
		return f
	}
	f.bytes = bytes
	return f
}

// newFlow makes a flow of so many bytes, and its source if that is new; nil = there is no memory.
func (t *Table) newFlow(s *stream, svc *service, bytes int) *flow {
	all := bytes
	if _, found := svc.find(s.node.Locality); !found {
		all += sourceBytes + nameBytes(&s.node.Locality)
	}
	if !t.memory.take(s.address(), all) {
		t.memory.refused++
		return nil
	}
	src := svc.source(s.node.Locality)
	if all > bytes {
		src.founder = s.address()
	}
	f := &flow{stream: s, source: src, weight: 1, bytes: bytes}
	s.insert(f)
	src.insert(f)
	return f
}

// siteMemory returns memory for n sites of a window: that of a replaced window, if it fits. Much
// larger memory is not passed on: a client with many localities would leave it to all others.
func (t *Table) siteMemory(n int) []siteWindow {
	if last := len(t.spare) - 1; last >= 0 {
		out := t.spare[last]
		t.spare = t.spare[:last]
		if cap(out) >= n && cap(out) <= 2*n+16 {
			clear(out)
			return out[:0]
		}
	}
	return make([]siteWindow, 0, n)
}

// addIdle adds zero for the services that a report leaves out. Only reports of gRPC may be read
// that way: it omits idle services but sends its empty report. The client did report refused
// services: their last rate stands in, as for a missing report.
func (t *Table) addIdle(s *stream, reported []*ServiceReport, refused []string, arrived time.Time, gap time.Duration) {
	i := 0
	for _, f := range s.flows {
		name := f.source.service.name
		for i < len(reported) && reported[i].Service < name {
			i++
		}
		if i < len(reported) && reported[i].Service == name {
			continue
		}
		if _, told := slices.BinarySearch(refused, name); told {
			continue
		}
		f.take(window{length: max(gap, minLength)}, false, arrived, t.interval)
	}
}
