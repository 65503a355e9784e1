package lrs

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// booking books one report. Whichever stream has one next uses it again, so
// that a report costs no memory but that of its buffer.
type booking struct {
	stream   *stream
	options  reader.ReportOptions
	rejected uint64 // entries
	reason   string // of the newest rejection

	may    func(service string) bool // the methods of this booking, bound once
	reject func(reader.Rejection)
	stray  func(cluster []byte)
}

// bookings are those that nobody uses.
type bookings struct{ free sync.Pool }

func (p *bookings) take() *booking {
	if b, ok := p.free.Get().(*booking); ok {
		return b
	}
	b := &booking{}
	b.may, b.reject, b.stray = b.mayReport, b.refuse, b.noteUnknown
	return b
}

func (p *bookings) put(b *booking) {
	b.stream, b.options, b.rejected, b.reason = nil, reader.ReportOptions{}, 0, ""
	p.free.Put(b)
}

// book checks a report and adds it to the window.
func (st *stream) book(encoded []byte, now time.Time) error {
	s := st.server
	b := s.bookings.take()
	defer s.bookings.put(b)
	want := s.wanted().settings
	buf := s.buffers.take()
	b.stream = st
	b.options = reader.ReportOptions{
		Agent: st.node.Agent, Arrived: now, Buffer: &buf.report, Reject: b.reject, Unknown: b.stray,
		Endpoints: want.granularity, // who sends them unasked gains nothing by it
	}
	if !want.all {
		b.options.Known = want
	}
	if s.opts.MayReport != nil {
		b.options.May = b.may
	}
	r, _, err := s.reader.Read(encoded, &b.options)
	if err != nil {
		return err
	}
	s.metrics.reports.Inc()
	if st.append(r, buf, b.rejected, b.reason) {
		s.metrics.merged.Inc()
	}
	if b.rejected > 0 {
		if skipped, ok := s.limit.Allow(now); ok {
			s.log.Warn("entries of a load report can't be true and were left out", "node", st.node.ID, "locality", st.node.Locality.String(),
				"entries", b.rejected, "reason", b.reason, "skipped_lines", skipped)
		}
	}
	return nil
}

// refuse takes note of an entry that was left out.
func (b *booking) refuse(x reader.Rejection) {
	b.rejected++
	b.reason = x.Service + ": " + x.Text
	b.stream.server.metrics.rejected.WithLabelValues(string(x.Code)).Inc()
}

// mayReport tells whether the client may report on a service.
func (b *booking) mayReport(service string) bool {
	s := b.stream.server
	if s.opts.MayReport(b.stream.node.Locality, service) {
		return true
	}
	s.metrics.foreign.Inc()
	return false
}

// append adds a report to the window and tells whether it was merged into the
// one before.
func (st *stream) append(r load.Report, buf *buffer, rejected uint64, reason string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.form == rpc.V2017 {
		st.clock.measure(&r, st.interval)
	}
	st.last = r.Arrived
	st.reports++
	st.rejected += rejected
	if rejected > 0 {
		st.reason = reason
	}
	if n := len(st.window.Reports); n < maxReports { // the buffers of others are not used again
		if n == 0 {
			st.window.Reports = buf.window[:0]
		}
		st.buffers[n] = buf
	}
	return st.window.Append(r, maxReports)
}

// collect swaps the window for an empty one, and adds the buffers of its reports
// to a list.
func (st *stream) collect(buffers []*buffer) (load.StreamWindow, []*buffer) {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := st.window
	buffers = append(buffers, st.buffers[:len(out.Reports)]...)
	st.window.Reports, st.buffers = nil, [maxReports]*buffer{}
	return out, buffers
}

// close gives the last window. It is handed over later, so its buffers are not
// used again.
func (st *stream) close(now time.Time) load.StreamWindow {
	out, _ := st.collect(nil)
	out.Closed = now
	return out
}
