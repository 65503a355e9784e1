package xds

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// A client that asks for a service that does not exist is in sync: it has all
// that there is of it, which is nothing, and each of its calls fails. So names
// of no service are told: in what is known of a client, in a metric, in the log.

const (
	maxMissing     = 10               // names told of one watch
	missingTracked = 100              // names told of all clients together
	missingRenewed = 10 * time.Second // how long what all clients miss is remembered
)

// MissingService is a name that clients subscribe to and no service has.
type MissingService struct {
	Name    string
	Streams int    // that subscribe to it, of all types
	Node    string // one of the clients
	Peer    string // its address
}

// isMissing reports whether a subscribed name is that of no service, nor of the
// listener of a gRPC server. Services whose endpoints are not known yet exist.
func (w *watch) isMissing(set *view.Set, name string) bool {
	return w.kind != resource.Other && name != "" && name != resource.Wildcard && !set.Serves(w.kind, name)
}

// missing lists the services that are subscribed to and do not exist, sorted: at
// most so many, and how many there are. A name that stands for no service at all
// is listed itself.
func (w *watch) missing(set *view.Set, most int) (names []string, count int) {
	for name := range w.each {
		if !w.isMissing(set, name) {
			continue
		}
		if count++; len(names) < most {
			names = append(names, cmp.Or(resource.ServiceOf(w.kind, name), name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), count
}

// noteMissing counts a name of no service to which a stream begins to subscribe,
// and logs it.
func (s *stream) noteMissing(w *watch, name string) {
	if !w.isMissing(s.view.Set(), name) {
		return
	}
	s.server.metrics.missing[w.kind].Inc()
	if skipped, ok := s.server.missingLog.Allow(time.Now()); ok {
		s.server.options.Log.Warn("a client asks for a service that does not exist",
			slog.String("type", w.kind.String()), slog.String("name", name), slog.String("node", s.node.ID),
			slog.String("peer", s.peer), slog.Int("not_logged", skipped))
	}
}

// Missing lists the services that clients ask for and that do not exist, those
// first that most streams ask for; at most 100. It looks at each stream, so what it
// found holds for 10 seconds, or until the next publication.
func (s *Server) Missing() []MissingService {
	s.lacking.mu.Lock()
	defer s.lacking.mu.Unlock()
	set := s.published.Load()
	if now := time.Now(); set != s.lacking.set || now.Sub(s.lacking.at) >= missingRenewed {
		s.lacking.at, s.lacking.set, s.lacking.list = now, set, s.findMissing()
	}
	return s.lacking.list
}

func (s *Server) findMissing() []MissingService {
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) }) // the oldest client is named
	found := map[string]*MissingService{}
	lists := map[listOfKind][]string{} // streams share lists
	for _, st := range streams {
		for _, name := range st.missing(lists) {
			m := found[name]
			if m == nil {
				if len(found) >= missingTracked {
					continue
				}
				m = &MissingService{Name: name, Node: st.node.ID, Peer: st.peer}
				found[name] = m
			}
			m.Streams++
		}
	}
	out := make([]MissingService, 0, len(found))
	for _, m := range found {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b MissingService) int {
		return cmp.Or(cmp.Compare(b.Streams, a.Streams), strings.Compare(a.Name, b.Name))
	})
	return out
}

// listOfKind is a list of names, of one kind of resource, as one set has them.
type listOfKind struct {
	list *nameList
	kind resource.Kind
	set  *view.Set
}

// missing lists the services that the stream asks for and that do not exist.
func (s *stream) missing(lists map[listOfKind][]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.zone == nil || s.view == nil {
		return nil
	}
	var out []string
	set := s.view.Set()
	for _, w := range s.watches {
		var names []string
		if key := (listOfKind{w.list, w.kind, set}); w.list == nil {
			names, _ = w.missing(set, maxMissing)
		} else if known, ok := lists[key]; ok {
			names = known
		} else {
			names, _ = w.missing(set, maxMissing)
			lists[key] = names
		}
		for _, n := range names {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}
