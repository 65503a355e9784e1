package views

import (
	"maps"
	"slices"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/wire"
)

// View is a set as one source locality sees it. Safe for concurrent use.
type View struct {
	set      *Set
	locality isobar.Locality
	base     uint64   // seq of the view that changed was compared with; 0 = none
	changed  []string // services whose assignments differ from the base view's

	mu      sync.RWMutex
	entries map[string]*entry // by service, of all that was ever asked for
}

// entry is one assignment and its encoding.
type entry struct {
	assignment *isobar.Assignment // nil: there is no such service
	slot       slot
	empty      slot // the assignment without endpoints
}

// View makes the view of a locality. What the locality's previous view knew and
// wanted still asks for is compared and carried over; both may be nil, which
// carries over nothing and everything.
func (s *Set) View(l isobar.Locality, previous *View, wanted func(service string) bool) *View {
	v := &View{set: s, locality: l, entries: map[string]*entry{}}
	if previous == nil {
		return v
	}
	v.base = previous.set.seq
	for name, old := range previous.snapshot() {
		if wanted != nil && !wanted(name) {
			continue
		}
		a := s.plan.Assignment(name, l)
		if a == old.assignment {
			v.entries[name] = old
			continue
		}
		e := &entry{assignment: a}
		if a != nil {
			e.slot.fallback = old.slot.peek()
		}
		v.entries[name] = e
		v.changed = append(v.changed, name)
	}
	slices.Sort(v.changed)
	return v
}

// snapshot copies the entries, since streams may still ask for new ones.
func (v *View) snapshot() map[string]*entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.entries)
}

// Set is the set that the view belongs to.
func (v *View) Set() *Set { return v.set }

// Gone tells whether the plan has no service of that name.
func (v *View) Gone(name string) bool { return v.set.static[name] == nil }

// Lookup gives a resource by kind and name; nil when there is none.
func (v *View) Lookup(kind wire.Kind, name string) *Resource {
	switch kind {
	case wire.Endpoints:
		return v.endpoints(name)
	case wire.Cluster, wire.Listener, wire.Route:
		if s := v.set.static[name]; s != nil {
			return s.get(v.set.builder, kind)
		}
	case wire.Other:
	}
	return nil
}

func (v *View) endpoints(name string) *Resource {
	e := v.entry(name)
	if e.assignment == nil {
		return nil
	}
	return e.slot.get(func() (*Resource, error) {
		m, err := wire.Assignment(e.assignment)
		if err == nil {
			err = wire.CheckAssignment(m, name)
		}
		if err != nil {
			v.set.builder.refuse(wire.Endpoints, Refusal{Service: name, Source: v.locality, Err: err})
			return nil, err
		}
		v.set.builder.done(wire.Endpoints)
		return wire.Encode(name, wire.Endpoints, m)
	})
}

// Empty gives the assignment without endpoints, for the clients of a service
// that is gone.
func (v *View) Empty(name string) *Resource {
	return v.entry(name).empty.get(func() (*Resource, error) {
		return wire.Encode(name, wire.Endpoints, wire.EmptyAssignment(name))
	})
}

func (v *View) entry(name string) *entry {
	v.mu.RLock()
	e := v.entries[name]
	v.mu.RUnlock()
	if e != nil {
		return e
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.entries[name]; e != nil {
		return e
	}
	e = &entry{assignment: v.set.plan.Assignment(name, v.locality)}
	v.entries[name] = e
	return e
}

// Forget drops what the view holds of an assignment that nobody asks for any
// more; asking again makes it anew.
func (v *View) Forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.entries, name)
}

// Changed lists the names whose resources of a kind may differ from those that
// the view of an earlier set gave. It tells false when that is not known:
// everything may differ then. Names that nobody asked the earlier view for
// are not listed.
func (v *View) Changed(since uint64, kind wire.Kind) ([]string, bool) {
	if since == v.set.seq {
		return nil, true
	}
	if kind == wire.Endpoints {
		return v.changed, v.base != 0 && v.base == since
	}
	return v.set.changed, v.set.base != 0 && v.set.base == since
}
