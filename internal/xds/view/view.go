// Package view turns a plan into what clients see of it: encoded resources,
// one view per source locality. A resource is encoded once, when a client first
// asks for it, and then shared by all streams; what did not change between two
// plans is carried over as it is.
package view

import (
	"maps"
	"slices"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// View is a set as one source locality sees it. Safe for concurrent use.
type View struct {
	set      *Set
	locality isobar.Locality
	base     uint64   // seq of the view that changed was compared with; 0 = none
	changed  []string // services whose assignments differ from the base view's

	mu      sync.RWMutex
	entries map[string]*entry // by resource name, of all assignments of services that was ever asked for
}

// View makes the view of a locality. What the locality's previous view knew and
// wanted still asks for is compared and carried over; both may be nil, which
// carries over nothing and everything.
func (s *Set) View(l isobar.Locality, previous *View, wanted func(service string) bool) *View {
	v := &View{set: s, locality: l}
	if previous == nil {
		v.entries = map[string]*entry{}
		return v
	}
	v.base = previous.set.seq
	v.entries = previous.snapshot()
	for name, old := range v.entries {
		if wanted != nil && !wanted(name) {
			delete(v.entries, name)
			continue
		}
		if s.carries(name, previous.set) {
			continue
		}
		if a := s.assignment(name, l); a != old.assignment {
			v.entries[name] = old.successor(a)
			v.changed = append(v.changed, name)
		}
	}
	slices.Sort(v.changed)
	return v
}

// Appear adds names to what has changed since the previous view that clients of the locality subscribe
// to, and whose services the previous set did not have: a view keeps nothing of such names. The
// caller does so before any stream has the view.
func (v *View) Appear(names []string) {
	all := v.changed
	for _, name := range names {
		if v.entry(name).assignment != nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	v.changed = slices.Compact(all)
}

// carries reports, without a comparison, whether an assignment is that of an earlier
// set, for whomever; false where it may be another.
func (s *Set) carries(name string, earlier *Set) bool {
	if earlier.seq != s.base {
		return false
	}
	service := s.ServiceOf(name)
	_, same := s.same[service]
	return same && earlier.ServiceOf(name) == service
}

// Keeps reports whether a service has the same assignment in the set as in a view: clients of
// the view's locality have nothing new to learn of it. It encodes nothing.
func (s *Set) Keeps(service string, v *View) bool {
	if v.set.seq >= s.seq || s.carries(service, v.set) {
		return true
	}
	return s.plan.Assignment(service, v.locality) == v.set.plan.Assignment(service, v.locality)
}

// snapshot copies the entries, since streams may still ask for new ones.
func (v *View) snapshot() map[string]*entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.entries)
}

// Set is the set that the view belongs to.
func (v *View) Set() *Set { return v.set }

// Gone reports whether the service of an assignment's name does not exist. A service
// whose endpoints are not known yet is not gone: it has no assignment.
func (v *View) Gone(name string) bool {
	return !v.set.Has(v.set.ServiceOf(name))
}

// LookupAs returns a resource as clients want it of whose class nothing is said.
func (v *View) LookupAs(as rpc.As, kind resource.Kind, name string) *Resource {
	return v.LookupFor("", as, kind, name)
}

// LookupFor returns a resource by kind and name, as a client service wants it; nil
// when there is none.
func (v *View) LookupFor(client string, as rpc.As, kind resource.Kind, name string) *Resource {
	switch kind {
	case resource.Endpoints:
		return v.endpoints(client, as, name)
	case resource.Cluster, resource.Listener, resource.Route:
		if s := v.set.staticFor(kind, name); s != nil {
			return s.get(v.set.builder, as, kind, name)
		}
		if kind == resource.Listener {
			return v.set.builder.servers.get(v.set.builder, as.API, name)
		}
	case resource.Other:
	}
	return nil
}

func (v *View) endpoints(client string, as rpc.As, name string) *Resource {
	e := v.entry(name)
	if e.assignment == nil {
		return nil
	}
	if e.assignment.ResourceTTL == 0 {
		as.TTL = false // the same bytes
	}
	if e.assignment.Classes != nil {
		return v.ofClass(e, client, as, name)
	}
	return e.slot(as).get(func() (*Resource, error) {
		r, err := resource.EncodeAssignment(as, name, e.assignment) // which checks it
		if err != nil {
			v.set.builder.refuse(resource.Endpoints, Refusal{Service: e.assignment.Service, Source: v.locality, Err: err})
			return nil, err
		}
		v.set.builder.done(resource.Endpoints)
		return r, nil
	})
}

// Empty returns the assignment without endpoints, for the clients of a service
// that is gone.
func (v *View) Empty(as rpc.As, name string) *Resource {
	e := v.kept(name)
	if e == nil {
		e = v.keep(name)
	}
	return e.emptySlot(as).get(func() (*Resource, error) {
		return resource.EncodeAs(as, name, resource.Endpoints, resource.EmptyAssignment(name), 0)
	})
}

// nothing is the entry of all names of services that do not exist. Clients may ask for millions.
var nothing = &entry{}

// entry returns what there is of an assignment.
func (v *View) entry(name string) *entry {
	if e := v.kept(name); e != nil {
		return e
	}
	if v.Gone(name) {
		return nothing
	}
	return v.keep(name)
}

func (v *View) kept(name string) *entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.entries[name]
}

// keep is entry for one that is written to.
func (v *View) keep(name string) *entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.entries[name]; e != nil {
		return e
	}
	e := &entry{assignment: v.set.assignment(name, v.locality)}
	v.entries[name] = e
	return e
}

// Forget drops what the view holds of an assignment that nobody asks for any
// more; asking again makes it again.
func (v *View) Forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.entries, name)
}

// Changed lists the names whose resources of a kind may differ from those that
// the view of an earlier set gave. It tells false when that is not known:
// everything may differ then. Names that nobody asked the earlier view for
// are not listed.
func (v *View) Changed(since uint64, kind resource.Kind) ([]string, bool) {
	if since == v.set.seq {
		return nil, true
	}
	if kind == resource.Endpoints {
		return v.changed, v.base != 0 && v.base == since
	}
	return v.set.changed, v.set.base != 0 && v.set.base == since
}
