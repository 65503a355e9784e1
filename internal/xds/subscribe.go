package xds

import (
	"fmt"
	"log/slog"
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
func (s *session) replace(w *watch, names []string, may growth) error {
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
	w.spare = nil
	return nil
}

// begin subscribes to what the list of a watch has and the one before, which may be nil,
// had not, and no longer to what that had.
func (s *session) begin(w *watch, old *nameList, may growth) error {
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

// demandAll notes that the watch, of which nothing was sent, subscribes to all of
// its list, and reports whether its response can be shared. On an error, which is that of
// may, it has subscribed to nothing.
func (s *session) demandAll(w *watch, may growth) (bool, error) {
	a := s.group.sharedFor(w, nil, s.view, true, s.server.options.ResponseSize)
	if a == nil || len(a.items) == 0 {
		return false, nil
	}
	seq, err := s.group.subscribeAll(w, s.account, may)
	if err != nil {
		return false, err
	}
	w.fresh, w.otherwise = true, w.otherwise || w.list.xdstp
	w.unlisted = max(w.unlisted, seq)
	w.waits = a
	w.size += a.listed
	for _, n := range a.missing {
		s.noteMissing(w, n)
	}
	return true, nil
}

// abandon leaves a watch with what it subscribes to in its subs alone, after its list was
// begun, so that the end of the stream takes back that and nothing else.
func (s *session) abandon(w *watch, old *nameList) {
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
func (s *session) lapse(w *watch, names []string) {
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
func (s *session) subscribe(w *watch, name string) *sub {
	x := w.subs[name]
	if x == nil {
		x = s.track(w, name)
	}
	if !x.named {
		x.named = true
		w.demand(x)
		s.noteMissing(w, name)
		if w.kind == resource.Endpoints {
			w.unlisted = max(w.unlisted, s.group.subscribe(w.key(x.name), s.account))
		}
	}
	return x
}

// track begins to follow a name.
func (s *session) track(w *watch, name string) *sub {
	x := w.place()
	x.name = name
	w.add(x)
	w.fresh = true
	w.otherwise = w.otherwise || resource.NamedOtherwise(w.kind, name)
	return x
}

// unsubscribe forgets a name, unless the wildcard covers it.
func (s *session) unsubscribe(w *watch, x *sub) {
	x.named = false
	if w.covers(s.view, x.name) {
		return
	}
	s.forget(w, x)
}

func (s *session) forget(w *watch, x *sub) {
	w.drop(x)
	w.clear(x)
	delete(w.returns, x.name)
	if w.kind == resource.Endpoints {
		s.group.unsubscribe(w.key(x.name), x.acked)
	}
}

// setWildcard subscribes to everything, or no longer.
func (s *session) setWildcard(w *watch, on bool) {
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
func (s *session) cover(w *watch, name string) {
	x := w.find(s.view, name)
	if x == nil {
		x = s.track(w, name)
	}
	w.enqueue(x)
}

// renewed reports whether the cluster of an assignment was sent on this stream that the client did
// not have like that: it waits for the endpoints, whether they changed or not.
func (s *session) renewed(assignment string) bool {
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
func (s *session) adopt(w *watch, held map[string]string) {
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
			x.sent, x.pending = want, comparePending
			if w.kind == resource.Endpoints && s.renewed(name) {
				x.pending = resourcePending
			}
			kept = append(kept, x)
		case want != nil || w.kind != resource.Endpoints || s.view.Gone(name):
			x.sent = &view.Resource{Name: name, Version: version}
		}
	}
	if w.kind == resource.Endpoints {
		s.group.acknowledge(w.as, kept, time.Now())
	}
}

// noteMissing counts a name of no service to which a stream begins to subscribe,
// and logs it.
func (s *session) noteMissing(w *watch, name string) {
	if !w.isMissing(s.view.Set(), name) {
		return
	}
	s.server.metrics.missing[w.kind].Inc()
	if skipped, ok := s.server.missingLog.Allow(time.Now()); ok {
		s.server.options.Log.Warn("a client asks for a service that does not exist",
			slog.String("type", w.kind.String()), slog.String("name", name), slog.String("node", s.node.ID),
			slog.String("peer", s.peer), slog.Int("skipped_lines", skipped))
	}
}

// growth is asked before memory for names is used: many streams that ask at once would
// else all pass one check before any of them has counted. nil = what it grows by is allowed.
type growth func() error

// checkedNames is after how many names a growth is asked again.
const checkedNames = 16

// growth returns that of a request after which the stream would cost own bytes, if it
// shared nothing, and before bytes when it came.
func (s *session) growth(before, own int) growth {
	return func() error { return s.mayGrow(before, own) }
}

// reserve counts subs of a watch before they are made; recount finds out what is used
// in the end. The stream's lock is held.
func (s *session) reserve(bytes int, may growth) error {
	s.server.names.add(s.account, bytes)
	if err := may(); err != nil {
		s.server.names.add(s.account, -bytes)
		return err
	}
	s.counted += bytes
	return nil
}

// ownNames is what a stream would cost if it shared nothing.
func (s *session) ownNames() int {
	n := 0
	for _, w := range s.watches {
		n += s.ownOf(w)
	}
	return n
}

func (s *session) ownOf(w *watch) int {
	n, named := w.size, len(w.subs)
	if w.list != nil {
		n += w.list.size()
		named = max(named, len(w.list.names))
	}
	if w.kind == resource.Endpoints {
		n += wantCost * named
	}
	return n
}

// recount tells all what the stream's names cost that it shares with nobody. Its
// lock is held.
func (s *session) recount() {
	n := 0
	for _, w := range s.watches {
		n += w.size
	}
	if d := n - s.counted; d > countedNames || d < -countedNames || (n == 0 && d != 0) {
		s.server.names.add(s.account, d)
		s.counted = n
	}
}

// checkNames reports whether the stream may subscribe to what it does now; its
// names cost before bytes when the request came. What all streams have only bars
// those that ask for more: the others answer what they are sent, and would end for
// what newcomers do. Its lock is held.
func (s *session) checkNames(before int) error {
	s.recount()
	own, o := s.ownNames(), &s.server.options
	if own > o.StreamNames {
		return fmt.Errorf("%w names on one stream: they take %d bytes, want at most %d; ask for fewer or shorter ones", errFull, own, o.StreamNames)
	}
	return s.mayGrow(before, own)
}

// mayGrow reports whether the names of the stream may cost own bytes rather than before.
// It is asked before a request is done as well, with what it costs at least: requests
// that are refused would else cost as much as others while they are done.
func (s *session) mayGrow(before, own int) error {
	o := &s.server.options
	if own <= before {
		return nil
	}
	if a := s.account; a != nil && own > modestAccountNames {
		if used := a.used.Load(); used > int64(o.NameMemory/accountNames) {
			return fmt.Errorf("%w names on all streams of one address: they take %d bytes, of which this stream's may be %d, want at most %d; "+
				"ask for fewer, show a certificate, or raise xds.admission.name_megabytes", errFull, used, own, o.NameMemory/accountNames)
		}
	}
	if used := s.server.names.used.Load(); own > modestNames && used > int64(o.NameMemory) {
		return fmt.Errorf("%w names on all streams: they take %d bytes, of which this stream's may be %d, want at most %d; "+
			"ask for fewer, come back later, or raise xds.admission.name_megabytes", errFull, used, own, o.NameMemory)
	}
	return nil
}
