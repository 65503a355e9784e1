package reader

import (
	"reflect"
	"slices"

	"github.com/isobar-xds/isobar/internal/load"
)

// ReportBuffer is the memory of one report. It may be used for another one when the report is no
// longer needed: reports are large, and alike.
type ReportBuffer struct {
	services   []load.ServiceReport
	localities slab[load.LocalityReport]
	detailed   *detailBuffer // nil until a report has details
	beside     int           // bytes of the report outside of the buffer
	idle       int           // reports in a row that needed little of it
}

// detailBuffer is the memory of the values that only some clients report on localities.
type detailBuffer struct {
	details   slab[load.LocalityDetails]
	endpoints slab[load.EndpointReport]
}

const (
	// maxIdle is for how many small reports in a row the buffer of a large one is kept. Buffers
	// go from one client to another: if it were many, a few clients with large reports would in
	// time enlarge all buffers.
	maxIdle = 2
	// maxServices is for how many clusters a buffer has memory before the services are known to
	// exist: thousands of clients may report on unknown names.
	maxServices = 16
)

// Bytes of the parts of a report.
var (
	serviceBytes  = sizeOf[load.ServiceReport]()
	localityBytes = sizeOf[load.LocalityReport]()
	detailBytes   = sizeOf[load.LocalityDetails]()
	endpointBytes = sizeOf[load.EndpointReport]()
	metricBytes   = sizeOf[load.MetricSum]()
	dropBytes     = sizeOf[load.DropCount]()
	nameBytes     = sizeOf[string]()
)

func sizeOf[T any]() int { return int(reflect.TypeFor[T]().Size()) }

// Bytes returns how much memory of the buffer the report uses. Memory that a larger report left
// does not count: it is freed soon, and the client did not ask for it.
func (r *ReportBuffer) Bytes() int {
	n := r.beside + min(cap(r.services), 2*len(r.services))*serviceBytes + r.localities.taken()*localityBytes
	if d := r.detailed; d != nil {
		n += d.details.taken()*detailBytes + d.endpoints.taken()*endpointBytes
	}
	return n
}

// begin makes the buffer ready for another report, of so many clusters.
func (r *ReportBuffer) begin(clusters int) {
	if r.idle++; !r.oversized() {
		r.idle = 0
	}
	if r.idle >= maxIdle {
		*r = ReportBuffer{}
	}
	clear(r.services[:cap(r.services)]) // they hold on to localities, also beyond the present length
	if r.services == nil {
		r.services = []load.ServiceReport{} // a report on nothing has none
	}
	r.services = slices.Grow(r.services[:0], min(clusters, maxServices))
	if d := r.detailed; d != nil {
		r.localities.clear() // they hold on to details
		d.details.clear()    // and those to metrics
		d.details.begin()
		d.endpoints.begin()
	}
	r.localities.begin()
	r.beside = 0
}

// oversized reports whether any part is much larger than the report needed.
func (r *ReportBuffer) oversized() bool {
	d := r.detailed
	return muchMore(cap(r.services), len(r.services)) || r.localities.oversized() || d != nil && (d.details.oversized() || d.endpoints.oversized())
}

// muchMore reports whether memory for so many parts is much more than was needed.
func muchMore(memory, needed int) bool { return memory > 4*needed+32 }

// details returns memory for the details of localities.
func (r *ReportBuffer) details() *detailBuffer {
	if r.detailed == nil {
		r.detailed = &detailBuffer{}
	}
	return r.detailed
}

// maxSlab is how many parts of a kind a buffer keeps memory for.
const maxSlab = 16_384

// slab is memory for parts of one kind. One piece has the size of the previous report, to be
// written over; parts beyond it get pieces that grow.
type slab[T any] struct {
	memory []T // stays for the next report
	free   []T // the rest of it, or of the piece behind it
	used   int // by this report
	held   int // parts that there is memory for, that of this report included
	want   int // used by the report before, or expected of this one
}

func (s *slab[T]) begin() {
	s.free, s.used, s.held, s.want = s.memory, 0, len(s.memory), s.used
}

// clear forgets the parts of the report.
func (s *slab[T]) clear() { clear(s.memory[:min(len(s.memory), s.used)]) }

// taken returns the number of parts for which the report uses memory, those that it may yet need
// included.
func (s *slab[T]) taken() int { return min(s.held, 2*s.used) }

// oversized reports whether there is much more than the report needed.
func (s *slab[T]) oversized() bool { return muchMore(len(s.memory), s.used) }

// expect says how much the report will probably need.
func (s *slab[T]) expect(n int) { s.want = max(s.want, n) }

// take returns n parts.
func (s *slab[T]) take(n int) []T {
	if len(s.free) < n {
		s.free = make([]T, max(n, min(maxSlab, max(s.want, s.used))))
		s.held += len(s.free)
		if len(s.free) > len(s.memory) && len(s.free) <= maxSlab {
			s.memory = s.free
		}
	}
	s.used += n
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}
