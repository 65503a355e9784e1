package xds

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Publish makes set what all streams get. It does not wait for any of them.
// Sets that are published while an earlier one is on its way overtake it.
func (s *Server) Publish(set *view.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if s.published.Swap(set) == nil {
		close(s.first)
	}
	if len(set.Lifetimes()) > 0 && !s.refreshing {
		s.refreshing = true
		s.work.Go(s.refresher)
	}
	if !s.dispatching {
		s.dispatching = true
		s.work.Go(s.dispatch)
	}
}

// Dispatched reports whether each stream knows what is published: only then does
// [Client.InSync] refer to it.
func (s *Server) Dispatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dispatching
}

// Version returns the version of what is published; "" before the first publication.
func (s *Server) Version() string {
	if set := s.published.Load(); set != nil {
		return set.Version()
	}
	return ""
}

// Ready is closed by the first publication.
func (s *Server) Ready() <-chan struct{} { return s.first }

// ready waits for the first publication, for a bounded time: to be refused is
// better for a client than to wait without end.
func (s *Server) ready(ctx context.Context) error {
	select {
	case <-s.first:
		return nil
	default:
	}
	timer := time.NewTimer(s.options.FirstPlanWait)
	defer timer.Stop()
	select {
	case <-s.first:
		return nil
	case <-timer.C:
		return errNothing
	case <-s.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A server that belongs to a group of replicas may lag behind the others, or be cut
// off from them. It then must not tell a client that something is gone which another
// server has, and must not show a client an older version than another server did.

// HoldRemovals holds back everything that tells clients of something being absent,
// until it is called with false: listeners and clusters that a response leaves out,
// removed resources of delta, assignments without endpoints of services that are gone.
// Everything else goes on.
func (s *Server) HoldRemovals(hold bool) {
	if s.holds.Swap(hold) == hold || hold {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.kick()
	}
}

func (s *Server) allGroups() []*localityGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.groups))
}

// Changed signals, at least once, that a locality subscribes to a service that
// it did not subscribe to before.
func (s *Server) Changed() <-chan struct{} { return s.changed }

func (s *Server) signalChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// dispatch brings groups and streams to what is published, until nothing newer
// has come meanwhile.
func (s *Server) dispatch() {
	r := &round{log: s.options.Log}
	for {
		set := s.published.Load()
		for _, g := range s.allGroups() {
			r.group(g, set)
		}
		r.rest(time.Now())
		s.mu.Lock()
		if s.stopped || s.published.Load() == set {
			s.dispatching = false
			s.mu.Unlock()
			s.options.Published()
			return
		}
		s.mu.Unlock()
	}
}

// round is the publication of one set to all streams. Streams that owed an answer when the
// previous set came get this one after all others: it takes a moment to note the changes for
// them, and they wait for themselves anyway.
type round struct {
	log     *slog.Logger
	streams []*stream // of a group; memory that all groups use
	behind  []*stream // for the end
}

// group brings a group to a set, and those of its streams that are not behind.
func (r *round) group(g *localityGroup, set *view.Set) {
	defer r.survive(g, set)
	view := g.update(set)
	now := time.Now() // once: it takes as long as to compose a response
	r.streams = g.followers(r.streams[:0])
	for _, st := range r.streams {
		if st.behind.Load() {
			r.behind = append(r.behind, st)
			continue
		}
		st.advance(view, now)
	}
}

// rest brings the streams that are behind to the views of their groups, after the
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
	view, _ := st.group.current() // set before the group knew of the stream
	defer r.survive(st.group, view.Set())
	st.advance(view, now)
}

// survive has a defect that panics cost its group or stream this set, not the
// process.
func (r *round) survive(g *localityGroup, set *view.Set) {
	if p := recover(); p != nil {
		r.log.Error("publishing failed with an internal error; the previous plan stays in force",
			"locality", g.locality.String(), "version", set.Version(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// refreshTick is how often it is looked which assignments have to be sent
// again. They live for 5 s at least.
const refreshTick = time.Second

// refreshShare is the part of its life after which an assignment is sent again:
// one message may be lost, and the next be late.
const refreshShare = 3

// refresher sends assignments again before clients forget them, as long as the
// server runs.
func (s *Server) refresher() {
	ticker := time.NewTicker(refreshTick)
	defer ticker.Stop()
	next := map[string]time.Time{} // by service
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticker.C:
			if due := dueAt(now, s.published.Load().Lifetimes(), next); len(due) > 0 {
				s.refresh(due)
			}
		}
	}
}

// dueAt returns the services whose time has come, and notes when it comes again.
func dueAt(now time.Time, all map[string]view.Lifetime, next map[string]time.Time) map[string]view.Lifetime {
	maps.DeleteFunc(next, func(name string, _ time.Time) bool { _, still := all[name]; return !still })
	due := map[string]view.Lifetime{}
	for name, l := range all { // the order of sending is that of the streams' queues
		shortest := l.Stale
		if shortest == 0 || (l.TTL > 0 && l.TTL < shortest) {
			shortest = l.TTL
		}
		at, known := next[name]
		again := now.Add(shortest/refreshShare - refreshTick/2) // never later than that
		if known && now.Before(at) {
			if again.Before(at) {
				next[name] = again // it lives shorter than it did
			}
			continue
		}
		next[name] = again
		if known {
			due[name] = l
		}
	}
	return due
}

// refresh sends the assignments of services again to all who have them.
func (s *Server) refresh(due map[string]view.Lifetime) {
	for _, g := range s.allGroups() {
		g.mu.Lock()
		streams := slices.Clone(g.streams)
		g.mu.Unlock()
		for _, st := range streams {
			if st.renewDue(due) {
				st.offer(time.Now())
			}
		}
	}
}
