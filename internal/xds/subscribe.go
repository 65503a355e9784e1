package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// The methods here change what a stream subscribes to; its lock is held.

// replace makes names the whole subscription, as state-of-the-world requests
// say it. New names are answered even if the client may know them. On an error, which is
// that of may, the stream subscribes to a part of them, and has to end.
func (s *stream) replace(w *watch, names []string, may growth) error {
	switch {
	case len(names) > 0:
		w.named = true
		s.setWildcard(w, slices.Contains(names, resource.Wildcard))
	case w.kind.FullSet() && !w.named:
		s.setWildcard(w, true) // the wildcard of old clients
	default:
		s.setWildcard(w, false)
	}
	next, err := s.server.lists.take(names, s.account, may)
	if err != nil {
		return err
	}
	old := w.list
	defer s.server.lists.release(old)
	if old == next {
		return nil
	}
	w.unfold()
	if old != nil {
		for _, n := range old.names {
			if !next.has(n) && w.lists(n) {
				w.find(s.view, n) // unsubscribed below
			}
		}
	}
	w.list = next
	if err := s.begin(w, old, may); err != nil {
		s.abandon(w, old)
		return err
	}
	w.room = nil
	return nil
}

// begin subscribes to what the list of a watch has and the one before, which may be nil,
// had not, and no longer to what that had.
func (s *stream) begin(w *watch, old *nameList, may growth) error {
	next := w.list
	if old == nil && w.subs == nil {
		if shared, err := s.demandAll(w, may); shared || err != nil {
			return err
		}
	}
	added, bytes := 0, 0
	for _, n := range next.names {
		if old == nil || !old.has(n) {
			added++
			bytes += subSize(n)
		}
	}
	if err := s.reserve(bytes, may); err != nil {
		return err
	}
	if old == nil && w.subs == nil {
		w.expect(added)
	}
	for _, x := range w.subs {
		if x.named && !w.lists(x.name) {
			s.unsubscribe(w, x)
		}
	}
	done := 0
	for _, n := range next.names {
		if !w.lists(n) || old != nil && old.has(n) {
			continue
		}
		s.subscribe(w, n)
		if done++; done%checkedNames == 0 {
			if err := may(); err != nil {
				return err
			}
		}
	}
	return nil
}

// abandon leaves a watch with what it subscribes to in its subs alone, after its list was
// begun, so that the end of the stream takes back that and nothing else.
func (s *stream) abandon(w *watch, old *nameList) {
	next := w.list
	if old != nil {
		for _, n := range old.names {
			if next.has(n) {
				w.find(s.view, n)
			}
		}
	}
	w.list = nil
	s.server.lists.release(next)
}

// lapse demands the listed names that a request with a stale nonce leaves out.
// The client has forgotten their resources; if it lists the names again in
// the request that counts, it needs the resources again.
func (s *stream) lapse(w *watch, names []string) {
	if w.list == nil {
		return
	}
	still := make(map[string]bool, len(names))
	for _, n := range names {
		still[n] = true
	}
	for _, n := range w.list.names {
		if !still[n] && w.lists(n) {
			w.demand(w.find(s.view, n))
		}
	}
}

// subscribe adds a name; one that is new is demanded.
func (s *stream) subscribe(w *watch, name string) *sub {
	x := w.subs[name]
	if x == nil {
		x = s.track(w, name)
	}
	if !x.named {
		x.named = true
		w.demand(x)
		s.noteMissing(w, name)
		if w.kind == resource.Endpoints {
			w.unlisted = max(w.unlisted, s.zone.subscribe(w.key(x.name), s.account))
		}
	}
	return x
}

// track begins to follow a name.
func (s *stream) track(w *watch, name string) *sub {
	x := w.place()
	x.name = name
	w.add(x)
	w.fresh = true
	w.otherwise = w.otherwise || resource.NamedOtherwise(w.kind, name)
	return x
}

// unsubscribe forgets a name, unless the wildcard covers it.
func (s *stream) unsubscribe(w *watch, x *sub) {
	x.named = false
	if w.covers(s.view, x.name) {
		return
	}
	s.forget(w, x)
}

func (s *stream) forget(w *watch, x *sub) {
	w.drop(x)
	w.clear(x)
	delete(w.returns, x.name)
	if w.kind == resource.Endpoints {
		s.zone.unsubscribe(w.key(x.name), x.acked)
	}
}

// setWildcard subscribes to everything, or no longer.
func (s *stream) setWildcard(w *watch, on bool) {
	if !w.kind.FullSet() || w.wildcard == on {
		return
	}
	w.wildcard = on
	if !on {
		for _, x := range w.subs {
			if !x.named {
				s.forget(w, x)
			}
		}
		return
	}
	w.owed = true
	if w.kind == resource.Cluster {
		for _, n := range s.view.Set().Names() {
			s.cover(w, n)
		}
	}
}

// cover follows a name because of the wildcard.
func (s *stream) cover(w *watch, name string) {
	x := w.find(s.view, name)
	if x == nil {
		x = s.track(w, name)
	}
	w.enqueue(x)
}

// renewed tells whether the cluster of an assignment was sent on this stream that the client did
// not have like that: it waits for the endpoints, whether they changed or not.
func (s *stream) renewed(assignment string) bool {
	cluster := resource.Renamed(assignment, resource.Cluster)
	for _, w := range s.watches {
		if w.kind == resource.Cluster {
			x := w.subs[cluster]
			return x != nil && x.renewed
		}
	}
	return false
}

// adopt takes over what a delta client says it holds from an earlier stream.
func (s *stream) adopt(w *watch, held map[string]string) {
	var kept []*sub
	for _, name := range slices.Sorted(maps.Keys(held)) {
		if name == "" {
			continue // no resource has this name, so the client holds none
		}
		version := held[name]
		x := w.subs[name]
		if x == nil {
			if !w.wildcard {
				continue // held, but no longer wanted
			}
			// Gone since: found to be so when the answer is made.
			x = s.track(w, name)
			w.enqueue(x)
		}
		switch want := s.want(w, x); {
		case want != nil && want.Version == version:
			x.sent, x.due = want, w.kind == resource.Endpoints && s.renewed(name)
			kept = append(kept, x)
		case want != nil || w.kind != resource.Endpoints || s.view.Gone(name):
			x.sent = &view.Resource{Name: name, Version: version}
		}
	}
	if w.kind == resource.Endpoints {
		s.zone.acknowledge(w.as, kept, time.Now())
	}
}
