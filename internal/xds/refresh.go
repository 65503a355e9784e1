package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

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

// dueAt gives the services whose time has come, and notes when it comes again.
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
	for _, z := range s.allZones() {
		z.mu.Lock()
		streams := slices.Collect(maps.Keys(z.streams))
		z.mu.Unlock()
		for _, st := range streams {
			if st.renewDue(due) {
				st.offer(time.Now())
			}
		}
	}
}

// renewDue queues what has to be sent again, and tells whether there is
// something to send.
func (s *stream) renewDue(due map[string]view.Lifetime) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for _, w := range s.watches {
		if w.kind != resource.Endpoints || w.as.Form == rpc.V2017 {
			continue // in 2017 nothing grew stale
		}
		if !w.otherwise {
			for name, l := range due {
				s.keepAlive(w, name, l)
			}
			continue
		}
		for _, name := range slices.Collect(w.each) { // keepAlive adds to them
			if l, is := due[resource.ServiceOf(resource.Endpoints, name)]; is {
				s.keepAlive(w, name, l)
			}
		}
	}
	return s.pending()
}

// keepAlive queues an assignment that the client has: a heartbeat where that is
// enough, else all of it. On state-of-the-world streams it is not: Envoy takes a
// message for a heartbeat only if that has the version of the last one, which
// speaks of all resources. What the client rejected it does not get again, but for
// what it rejected together with others: that is sent alone, or the defect of one
// service would let the endpoints of another grow stale.
func (s *stream) keepAlive(w *watch, name string, l view.Lifetime) {
	x := w.find(s.view, name)
	switch {
	case x == nil || x.sent == nil || x.rejected && !x.apart:
	case l.Stale == 0 && !w.as.TTL:
		w.retire(s.view, x)
	case l.Stale > 0 || x.apart || !s.delta:
		w.demand(x)
	default:
		x.beat = true
		w.enqueue(x)
	}
}
