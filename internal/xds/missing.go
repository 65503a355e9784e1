package xds

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// A client that asks for a service that does not exist is in sync: it has all
// that there is of it, which is nothing, and each of its calls fails. So names
// of no service are told: in what is known of a client, in a metric, in the log.

// MissingListed bounds the list of [Server.Missing].
const MissingListed = 100

const (
	maxMissing     = 10               // reported names of one watch
	missingRenewed = 10 * time.Second // how long what all clients miss is remembered
)

// MissingService is a name that clients subscribe to and no service has.
type MissingService struct {
	Name    string
	Streams int    // that subscribe to it, of all types
	Node    string // one of the clients
	Peer    string // its address
}

// missingServices is what was found to be missing last.
type missingServices struct {
	mu   sync.Mutex
	at   time.Time
	set  *view.Set
	list []MissingService
}

// of returns what is missing of a set; find looks for it.
func (m *missingServices) of(set *view.Set, now time.Time, find func() []MissingService) []MissingService {
	m.mu.Lock()
	defer m.mu.Unlock()
	if set != m.set || now.Sub(m.at) >= missingRenewed {
		m.at, m.set, m.list = now, set, find()
	}
	return m.list
}

// findMissing looks at each of the streams, of which the oldest comes first: its client is named.
func findMissing(streams []*stream) []MissingService {
	found := map[string]*MissingService{}
	lists := map[listOfKind][]string{} // streams share lists
	for _, st := range streams {
		for _, name := range missingOf(&st.session, lists) {
			m := found[name]
			if m == nil {
				if len(found) >= MissingListed {
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

// missingOf lists the services that a client asks for and that do not exist.
func missingOf(s *session, lists map[listOfKind][]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.group == nil || s.view == nil {
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
