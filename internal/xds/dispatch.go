package xds

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/view"
)

// dispatch brings zones and streams to what is published, until nothing newer
// has come meanwhile.
func (s *Server) dispatch() {
	r := &round{log: s.options.Log}
	for {
		set := s.published.Load()
		for _, z := range s.allZones() {
			r.zone(z, set)
		}
		r.rest(time.Now())
		s.mu.Lock()
		if s.stopped || s.published.Load() == set {
			s.dispatching = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// round is one set on its way to all streams. Streams that owed an answer when
// the set before came are told of this one after all others: it takes a moment
// to note what has changed for them, and they wait for themselves anyway.
type round struct {
	log     *slog.Logger
	streams []*stream // of a zone; room that all zones use
	behind  []*stream // for the end
}

// zone brings a zone to a set, and those of its streams that are not behind.
func (r *round) zone(z *localityGroup, set *view.Set) {
	defer r.survive(z, set)
	view := z.update(set)
	now := time.Now() // once: it takes as long as to compose a response
	r.streams = z.followers(r.streams[:0])
	for _, st := range r.streams {
		if st.behind.Load() {
			r.behind = append(r.behind, st)
			continue
		}
		st.advance(view, now)
	}
}

// rest brings the streams that are behind to the views of their zones, after the
// transport has had its turn to write what the others were sent.
func (r *round) rest(now time.Time) {
	if len(r.behind) > 0 {
		runtime.Gosched()
	}
	for _, st := range r.behind {
		r.late(st, now)
	}
	clear(r.behind)
	r.behind = r.behind[:0]
}

func (r *round) late(st *stream, now time.Time) {
	view, _ := st.zone.current() // set before the zone knew of the stream
	defer r.survive(st.zone, view.Set())
	st.advance(view, now)
}

// survive has a defect that panics cost its zone or stream this set, not the
// process.
func (r *round) survive(z *localityGroup, set *view.Set) {
	if p := recover(); p != nil {
		r.log.Error("a publication failed by an internal error; what was served before stays",
			"locality", z.locality.String(), "version", set.Version(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}
