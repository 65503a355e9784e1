package xds

import (
	"slices"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// adjust brings the stream's state to a view and reports whether there is
// something to send.
func (s *session) adjust(view *view.View) bool {
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
func (s *session) follow(w *watch, before *view.View) {
	names, known := s.view.Changed(before.Set().Seq(), w.kind)
	w.unfold()
	if s.followShared(w, before, known) {
		return
	}
	if !known || w.fresh {
		// What was subscribed after the set was compared with the one before
		// may be missing in names, and in those of the next view, too, where the
		// group was ahead of the stream.
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
		s.renewOtherwise(w, before) // names holds services only
	}
}

// followShared brings a watch with nothing on its way to the stream's view by a
// shared response; false where it has to be done name by name.
func (s *session) followShared(w *watch, before *view.View, known bool) bool {
	if w.list == nil || len(w.subs) > 0 || len(w.queue) > 0 || w.unacked || w.owed || w.wildcard {
		return false
	}
	all := !known || w.fresh
	a := s.group.sharedFor(w, before, s.view, all, s.server.options.ResponseSize)
	if a == nil {
		return false
	}
	if all {
		w.fresh = s.view.Set().Seq() < w.unlisted
	}
	if len(a.items) > 0 {
		w.waits = a
		w.size += a.cost
	}
	return true
}

// renew queues those of names that are subscribed and not the same as before.
func (s *session) renew(w *watch, before *view.View, names []string) {
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
func (s *session) renewOtherwise(w *watch, before *view.View) {
	var names []string
	for n := range w.each {
		if resource.NamedOtherwise(w.kind, n) {
			names = append(names, n)
		}
	}
	s.renew(w, before, names)
}

// want returns what the client should have of a resource; nil = nothing.
func (s *session) want(w *watch, x *sub) *view.Resource {
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
		if s.delta && x.delivery == settled && same(x.sent, empty) {
			return nil // the client has it empty: now the name can be removed
		}
		return empty
	}
	return x.sent // not decided for this locality, or refused: keep what works
}

// withdrawn reports whether a gRPC client learns from its cluster that the
// service is gone. It must not get an assignment without endpoints: that would
// remove what it keeps with ignore_resource_deletion.
func (s *session) withdrawn(assignment string) bool {
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

// vanishes reports whether sending a resource takes something away that listeners
// and routes may still lead to.
func (s *session) vanishes(w *watch, x *sub, want *view.Resource) bool {
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

// held reports whether the next response of a type has to wait because it would tell
// the client of an absence. Only full sets wait as a whole: other responses leave out
// what waits; see [stream.withheld].
func (s *session) held(w *watch) bool {
	if !s.server.holds.Load() {
		return false
	}
	if w.waits != nil && len(w.waits.missing) > 0 {
		w.unfold() // name by name
	}
	if !w.kind.FullSet() || s.delta {
		return false
	}
	for _, x := range w.subs {
		if (x.pending == resourcePending || x.sent != nil) && s.wanted(w, x) && s.want(w, x) == nil {
			return true
		}
	}
	return false
}

// wanted reports whether a resource is one that the client asks for: a listener that
// only the wildcard covers is never sent.
func (s *session) wanted(w *watch, x *sub) bool { return w.kind != resource.Listener || x.named }

// withheld reports whether a resource stays out of a response for now, because it
// would tell the client of an absence.
func (s *session) withheld(w *watch, x *sub) bool {
	if !s.server.holds.Load() {
		return false
	}
	want := s.want(w, x)
	if want == nil {
		return s.delta && (x.pending == resourcePending || x.sent != nil)
	}
	return w.kind == resource.Endpoints && s.view.Gone(x.name) && !same(want, x.sent)
}

// renewDue queues what has to be sent again, and reports whether there is
// something to send.
func (s *session) renewDue(due map[string]view.Lifetime) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for _, w := range s.watches {
		if w.kind != resource.Endpoints || w.as.API == rpc.V2017 {
			continue // in 2017 nothing grew stale
		}
		if !w.otherwise {
			for name, l := range due {
				s.keepAlive(w, name, l)
			}
			continue
		}
		for _, name := range slices.Collect(w.each) { // keepAlive adds to them
			if l, is := due[s.view.Set().ServiceOf(name)]; is {
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
func (s *session) keepAlive(w *watch, name string, l view.Lifetime) {
	x := w.find(s.view, name)
	switch {
	case x == nil || x.sent == nil || x.delivery == rejectedAlone:
	case l.Stale == 0 && !w.as.TTL:
		w.retire(s.view, x)
	case l.Stale > 0 || x.delivery == rejectedTogether || !s.delta:
		w.demand(x)
	default:
		w.await(x, heartbeatPending)
	}
}
