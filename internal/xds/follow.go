package xds

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// advance brings the stream to a view, and has sent what that leaves to send.
func (s *stream) advance(view *view.View, now time.Time) {
	if s.adjust(view) {
		s.offer(now)
	}
}

// adjust brings the stream's state to a view and tells whether there is
// something to send.
func (s *stream) adjust(view *view.View) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.view == nil || view.Set().Seq() <= s.view.Set().Seq() {
		return false
	}
	before := s.view
	s.view = view
	for _, w := range s.watches {
		s.follow(w, before)
	}
	s.behind.Store(slices.ContainsFunc(s.watches, func(w *watch) bool { return w.unacked }))
	return s.pending()
}

// follow queues what may have changed since an earlier view.
func (s *stream) follow(w *watch, before *view.View) {
	names, known := s.view.Changed(before.Set().Seq(), w.kind)
	w.unfold()
	if s.followShared(w, before, known) {
		return
	}
	if !known || w.fresh {
		// What was subscribed after the set was compared with the one before
		// may be missing in names, and in those of the next view, too, where the
		// zone was ahead of the stream.
		w.fresh = s.view.Set().Seq() < w.unlisted
		for _, x := range w.subs {
			w.enqueue(x)
		}
		if w.list != nil {
			s.renew(w, before, w.list.names)
		}
	}
	if !known {
		names = s.view.Set().Names() // for the wildcard
	}
	s.renew(w, before, names)
	if known && w.otherwise && w.kind != resource.Endpoints {
		s.renewOtherwise(w, before) // names tells of services only
	}
}

// renew queues those of names that are subscribed and not the same as before.
func (s *stream) renew(w *watch, before *view.View, names []string) {
	for _, n := range names {
		switch x := w.subs[n]; {
		case x != nil:
			w.enqueue(x)
		case w.lists(n):
			if !same(w.lookup(before, n), w.lookup(s.view, n)) {
				w.enqueue(w.find(before, n))
			}
		case w.covers(s.view, n):
			s.cover(w, n)
		}
	}
}

// renewOtherwise is renew for what is subscribed under another name than that of
// the service.
func (s *stream) renewOtherwise(w *watch, before *view.View) {
	var names []string
	for n := range w.each {
		if resource.NamedOtherwise(w.kind, n) {
			names = append(names, n)
		}
	}
	s.renew(w, before, names)
}

// want gives what the client should have of a resource; nil = nothing.
func (s *stream) want(w *watch, x *sub) *view.Resource {
	if w.kind == resource.Listener && !x.named {
		return nil
	}
	r := w.lookup(s.view, x.name)
	if r != nil || w.kind != resource.Endpoints || x.sent == nil {
		return r
	}
	if s.view.Gone(x.name) {
		if s.withdrawn(x.name) {
			return x.sent
		}
		empty := s.view.Empty(w.as, x.name) // Envoy ignores removals of assignments
		if s.delta && !x.flying && !x.rejected && same(x.sent, empty) {
			return nil // the client has it empty: now the name can be removed
		}
		return empty
	}
	return x.sent // not decided for this locality, or refused: keep what works
}

// withdrawn reports whether a gRPC client learns from its cluster that the
// service is gone. It must not get an assignment without endpoints: that would
// take away what it keeps with ignore_resource_deletion.
func (s *stream) withdrawn(assignment string) bool {
	if !s.node.IsGRPC() {
		return false
	}
	cluster := resource.Renamed(assignment, resource.Cluster)
	for _, w := range s.watches {
		if w.kind == resource.Cluster {
			return w.wildcard || w.subs[cluster] != nil || w.lists(cluster)
		}
	}
	return false
}

// vanishes tells whether sending a resource takes something away that listeners
// and routes may still lead to.
func (s *stream) vanishes(w *watch, x *sub, want *view.Resource) bool {
	if x.sent == nil {
		return false
	}
	switch w.kind {
	case resource.Cluster:
		return want == nil
	case resource.Endpoints:
		return s.view.Gone(x.name) && !same(want, x.sent)
	case resource.Listener, resource.Route, resource.Other:
	}
	return false
}
