package wire

import "github.com/isobar-xds/isobar/internal/load"

// ReportRoom is the memory of one report. It may be used for another one when
// nobody needs the report any more: reports are large, and alike.
type ReportRoom struct {
	services   []load.ServiceReport
	localities []load.LocalityReport
	detailed   *detailRoom // nil until a report has details
}

// detailRoom is the memory of what only some clients tell of localities.
type detailRoom struct {
	details   slab[load.LocalityDetails]
	endpoints slab[load.EndpointReport]
	idle      int // reports in a row that needed little of it
}

// maxServiceRoom is for how many clusters a room has memory before it is known
// that they are of services that there are.
const maxServiceRoom = 1024

// muchMore tells whether a room is so much larger than a report needs it that it
// is let go. Rooms go from one client to another, so that a few clients with large
// reports would sooner or later leave a large one to everybody.
func muchMore(room, need int) bool { return room > 4*need+256 }

// maxIdle is for how many small reports in a row the room of a large one is
// kept: clients of both kinds take turns in using rooms, and one that is large
// without need does not stay.
const maxIdle = 8

// begin makes the room ready for another report, of so many clusters.
func (r *ReportRoom) begin(clusters int) {
	if muchMore(cap(r.services), clusters) {
		r.services, r.localities = nil, nil
	}
	if r.services == nil {
		r.services = make([]load.ServiceReport, 0, min(clusters, maxServiceRoom))
	}
	d := r.detailed
	if d == nil {
		return
	}
	if d.idle++; !d.details.roomy() && !d.endpoints.roomy() {
		d.idle = 0
	}
	if d.idle >= maxIdle {
		r.detailed = nil
		return
	}
	clear(d.details.room[:min(len(d.details.room), d.details.used)]) // they hold on to metrics
	d.details.begin()
	d.endpoints.begin()
}

// details gives room for the details of localities.
func (r *ReportRoom) details() *detailRoom {
	if r.detailed == nil {
		r.detailed = &detailRoom{}
	}
	return r.detailed
}

// maxSlab is how many parts of a kind a room keeps memory for.
const maxSlab = 16_384

// slab is memory for parts of one kind. What the report before needed comes in
// one piece, to be written over; what goes beyond it, in pieces that grow.
type slab[T any] struct {
	room []T // stays for the next report
	free []T // what is left of it, or of the piece behind it
	used int // by this report
	want int // used by the report before
}

func (s *slab[T]) begin() {
	s.free, s.used, s.want = s.room, 0, s.used
}

// roomy tells whether there is much more than the report needs.
func (s *slab[T]) roomy() bool { return 4*s.used < len(s.room) }

// take gives n parts.
func (s *slab[T]) take(n int) []T {
	if len(s.free) < n {
		s.free = make([]T, max(n, min(maxSlab, max(s.want, s.used))))
		if len(s.free) > len(s.room) && len(s.free) <= maxSlab {
			s.room = s.free
		}
	}
	s.used += n
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}
