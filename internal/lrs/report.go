package lrs

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// decoding is the reading of one report. Whichever stream has one next uses it again, so
// that a report costs no memory but that of its buffer.
type decoding struct {
	stream   *stream
	options  reader.ReportOptions
	rejected uint64 // entries
	reason   string // of the newest rejection

	may    func(service string) bool // the methods of this decoding, bound once
	reject func(reader.Rejection)
	stray  func(cluster []byte)
}

// decodings are the unused ones.
type decodings struct{ free sync.Pool }

func (p *decodings) take() *decoding {
	if b, ok := p.free.Get().(*decoding); ok {
		return b
	}
	b := &decoding{}
	b.may, b.reject, b.stray = b.mayReport, b.refuse, b.noteUnknown
	return b
}

func (p *decodings) put(b *decoding) {
	b.stream, b.options, b.rejected, b.reason = nil, reader.ReportOptions{}, 0, ""
	p.free.Put(b)
}

// report checks a load report and adds it to the window.
func (st *stream) report(encoded []byte, now time.Time) error {
	s := st.server
	if len(encoded) > modestReport && s.budget.isFull(st.account()) {
		st.overflow(now)
		return nil
	}
	b := s.decodings.take()
	defer s.decodings.put(b)
	want := s.wanted().settings
	buf := s.buffers.take()
	b.stream = st
	b.options = reader.ReportOptions{
		Agent: st.node.Agent, Arrived: now, Buffer: &buf.report, Reject: b.reject, Unknown: b.stray,
		Endpoints: want.granularity, // a client that sends them without request gains nothing by it
	}
	if !want.all {
		b.options.Known = want
	}
	if s.opts.MayReport != nil {
		b.options.May = b.may
	}
	r, err := s.reader.Read(encoded, &b.options)
	if err != nil {
		return err
	}
	s.metrics.reports.Inc()
	if !st.admit(buf.report.Bytes(), now) {
		return nil // its buffer goes, too: a small report would keep a large one until the tick
	}
	if st.append(r, buf, b.rejected, b.reason) {
		s.metrics.merged.Inc()
	}
	if b.rejected > 0 {
		if skipped, ok := s.limit.Allow(now); ok {
			s.log.Warn("ignored implausible load report entries", "node", st.node.ID, "locality", st.node.Locality.String(),
				"entries", b.rejected, "reason", b.reason, "skipped_lines", skipped)
		}
	}
	return nil
}

// admit reports whether there is memory for a report until it is collected. If not it is to be
// ignored, which is counted and logged.
func (st *stream) admit(bytes int, now time.Time) bool {
	st.mu.Lock()
	modest := len(st.window.Reports) == 0 && bytes <= modestReport
	st.mu.Unlock()
	if st.server.budget.take(st.account(), bytes, modest) {
		return true
	}
	st.overflow(now)
	return false
}

// account is the name under which the stream's reports count, "" for a client with a certificate:
// a whole fleet often has one.
func (st *stream) account() string {
	if st.window.Identified {
		return ""
	}
	return st.window.Account
}

// overflow notes that a report was ignored for the memory that those before it take.
func (st *stream) overflow(now time.Time) {
	s := st.server
	s.metrics.overflow.Inc()
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("ignored a load report: those of its address, or of all clients, take too much memory until the next tick; "+
			"raise xds.admission.report_megabytes", "node", st.node.ID, "locality", st.node.Locality.String(), "peer", st.peer,
			"skipped_lines", skipped)
	}
}

// refuse counts and logs an entry that was left out.
func (b *decoding) refuse(x reader.Rejection) {
	b.rejected++
	b.reason = x.Service + ": " + x.Text
	b.stream.server.metrics.rejected.WithLabelValues(string(x.Code)).Inc()
}

// mayReport reports whether the client may report on a service.
func (b *decoding) mayReport(service string) bool {
	s := b.stream.server
	if s.opts.MayReport(b.stream.node.Locality, service) {
		return true
	}
	s.metrics.foreign.Inc()
	return false
}

// noteUnknown counts an entry on a cluster that is no service.
func (b *decoding) noteUnknown(name []byte) {
	s := b.stream.server
	if string(name) == s.opts.ManagementCluster {
		return
	}
	s.metrics.unknown.Inc()
	if s.unknown.note(name, b.options.Arrived) {
		if skipped, ok := s.limit.Allow(b.options.Arrived); ok {
			s.log.Info("a client reports load for an unknown service; check the spelling of its name", "cluster", string(name),
				"node", b.stream.node.ID, "locality", b.stream.node.Locality.String(), "skipped_lines", skipped)
		}
	}
}

// append adds a report to the window and reports whether it was merged into the previous one.
func (st *stream) append(r load.Report, buf *buffer, rejected uint64, reason string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.api == rpc.V2017 {
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

// close returns the last window. It is handed over later, so its buffers are not
// used again.
func (st *stream) close(now time.Time) load.StreamWindow {
	out, _ := st.collect(nil)
	out.Closed = now
	return out
}

// buffer is the memory of a report, and of a window that holds nothing else.
type buffer struct {
	report reader.ReportBuffer
	window [1]load.Report
}

// bufferPool lets reports use memory again, as soon as the collector has released them.
type bufferPool struct {
	mu    sync.Mutex
	spare []*buffer // ready for use
	lent  []*buffer // of the reports that the collector has
	out   bool      // it has some
}

// take returns a buffer for a report.
func (r *bufferPool) take() *buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.spare)
	if n == 0 {
		return &buffer{}
	}
	out := r.spare[n-1]
	r.spare[n-1] = nil
	r.spare = r.spare[:n-1]
	return out
}

// list returns an empty list for the buffers that are lent next.
func (r *bufferPool) list() []*buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lent[:0]
}

// lend notes the buffers whose reports are collected.
func (r *bufferPool) lend(buffers []*buffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent, r.out = buffers, true
}

// release makes the lent buffers ready for use, or frees them. Those that were not taken since
// the last collection are too many, and are freed, too.
func (r *bufferPool) release(reuse bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.out {
		return
	}
	next := r.spare
	clear(next)
	r.spare, r.out = r.lent, false
	if !reuse {
		clear(r.spare)
		r.spare = r.spare[:0]
	}
	r.lent = next[:0]
}

// forget frees the buffers that are ready for use, when the reports themselves take much memory.
func (r *bufferPool) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = nil
}

const (
	// maxUnknown bounds the names that are remembered: they come from clients.
	maxUnknown = 100
	// unknownFor is how long a name is shown after the last report with it.
	unknownFor = 5 * time.Minute
	// unknownStep is how exact that is. Between two steps a report changes nothing.
	unknownStep = 10 * time.Second
)

// unknownClusters remembers the names of clusters in load reports that are no
// services. It is safe for concurrent use.
type unknownClusters struct {
	mu   sync.RWMutex
	last map[string]time.Time // newest report, by name
	kept time.Time            // until when no further name is stored; zero = there is memory
}

// note remembers a name and reports whether it is new. It makes no garbage for a name that it
// knows, and readers of reports full of other names do not wait while no further name is stored.
func (u *unknownClusters) note(name []byte, now time.Time) (isNew bool) {
	u.mu.RLock()
	at, known := u.last[string(name)]
	full := now.Before(u.kept)
	u.mu.RUnlock()
	if known && now.Sub(at) < unknownStep || !known && full {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !known && len(u.last) >= maxUnknown {
		maps.DeleteFunc(u.last, func(_ string, at time.Time) bool { return now.Sub(at) > unknownFor })
		if len(u.last) >= maxUnknown {
			u.kept = slices.MinFunc(slices.Collect(maps.Values(u.last)), time.Time.Compare).Add(unknownFor)
			return false
		}
	}
	if u.last == nil {
		u.last = map[string]time.Time{}
	}
	u.last[string(name)] = now
	return !known
}

// list returns the names that reports of the last minutes had, sorted.
func (u *unknownClusters) list(now time.Time) []string {
	u.mu.RLock()
	defer u.mu.RUnlock()
	var out []string
	for name, at := range u.last {
		if now.Sub(at) <= unknownFor {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
