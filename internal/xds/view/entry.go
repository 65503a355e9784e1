package view

import (
	"sync"
	"sync/atomic"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// entry is one assignment under one name, and its encodings.
type entry struct {
	assignment *isobar.Assignment // nil: there is no such service
	plain      slot               // v3 without TTL, which nearly all clients take
	others     atomic.Pointer[otherSlots]
	classes    atomic.Pointer[classSlots] // only where clients drop by class
}

// otherSlots are the encodings that few clients ask for.
type otherSlots struct {
	slots [rpc.Variants]slot // that of plain v3 is not used
	empty [rpc.Variants]slot // the assignment without endpoints
}

func (e *entry) slot(as rpc.As) *slot {
	if n := as.Variant(); n > 0 {
		return &e.more().slots[n]
	}
	return &e.plain
}

func (e *entry) emptySlot(as rpc.As) *slot { return &e.more().empty[as.Variant()] }

func (e *entry) more() *otherSlots {
	if o := e.others.Load(); o != nil {
		return o
	}
	e.others.CompareAndSwap(nil, &otherSlots{})
	return e.others.Load()
}

// successor is the entry of the same name when it has another assignment. What
// was good last may stand in for what is refused.
func (e *entry) successor(a *isobar.Assignment) *entry {
	next := &entry{assignment: a}
	if a == nil {
		return next
	}
	next.plain.fallback = e.plain.peek()
	if c := e.classes.Load(); c != nil && a.Classes != nil {
		next.ofClasses().inherit(c)
	}
	if o := e.others.Load(); o != nil {
		for n := range o.slots {
			next.more().slots[n].fallback = o.slots[n].peek()
		}
	}
	return next
}

// assignment finds the assignment for a resource name.
func (s *Set) assignment(name string, l isobar.Locality) *isobar.Assignment {
	service := s.ServiceOf(name)
	if service == "" {
		return nil
	}
	return s.plan.Assignment(service, l)
}

// slot holds a resource that is encoded when it is first asked for.
type slot struct {
	ready atomic.Bool

	mu       sync.Mutex
	resource *Resource // not written after ready
	// fallback is the last good resource of the slot's predecessor. It stays
	// when the new content is refused, and is kept when its bytes are equal.
	fallback *Resource
}

// get encodes once. An error of encode has been reported by it; the fallback
// takes its place.
func (s *slot) get(encode func() (*Resource, error)) *Resource {
	if s.ready.Load() {
		return s.resource
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.Load() {
		return s.resource
	}
	r, err := encode()
	if err != nil || (r != nil && s.fallback != nil && r.Version == s.fallback.Version) {
		r = s.fallback
	}
	s.resource, s.fallback = r, nil
	s.ready.Store(true)
	return r
}

// peek returns what a successor may fall back on.
func (s *slot) peek() *Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.Load() {
		return s.resource
	}
	return s.fallback
}

// classSlots are the encodings of an assignment of which each class of clients
// drops another part.
type classSlots [isobar.Classes][rpc.Variants]slot

func (e *entry) ofClasses() *classSlots {
	if c := e.classes.Load(); c != nil {
		return c
	}
	e.classes.CompareAndSwap(nil, &classSlots{})
	return e.classes.Load()
}

// inherit keeps what was good last of another assignment.
func (c *classSlots) inherit(before *classSlots) {
	for k := range before {
		for n := range before[k] {
			c[k][n].fallback = before[k][n].peek()
		}
	}
}

// ofClass returns the assignment as clients of a client service get it. What they
// all get but for the drop is the resource's Base: only that is what they have to
// acknowledge before what they do says anything.
func (v *View) ofClass(e *entry, client string, as rpc.As, name string) *Resource {
	classes := e.assignment.Classes
	class := classes.Criticality.ClassOf(client)
	return e.ofClasses()[class][as.Variant()].get(func() (*Resource, error) {
		r, err := resource.EncodeAssignment(as, name, e.assignment.Dropping(classes.Drops[class]))
		if err == nil {
			var base *Resource
			if base, err = resource.EncodeAssignment(as, name, e.assignment.Dropping(0)); err == nil {
				r.Base = base.Version
			}
		}
		if err != nil {
			v.set.builder.refuse(resource.Endpoints, Refusal{Service: e.assignment.Service, Source: v.locality, Err: err})
			return nil, err
		}
		v.set.builder.done(resource.Endpoints)
		return r, nil
	})
}

// renamed holds what is encoded of one service under other names than its own,
// which are xdstp names, and what has a mark (resource.Remark).
type renamed struct {
	mu    sync.Mutex
	slots map[staticKey]*slot
	size  int64 // that is taken from the builder's
	over  bool  // the service is gone, or has another form: nothing more is kept
}

// staticKey is a resource under another name than the service's, or with a mark.
type staticKey struct {
	kind resource.Kind
	api  rpc.APIVersion
	grpc bool
	name string
	mark uint16
	old  bool // for old Envoys
}

// Bounds on stored names: any number of names stands for a service, and clients may make them up.
// Names beyond the bounds are encoded at each request.
const (
	maxRenamed     = 1024     // names of a service
	maxRenamedSize = 64 << 20 // bytes, estimated, of all that are kept by one builder
)

// renamedCost estimates what a name takes: it stands in a resource and around it
// several times.
func renamedCost(key staticKey) int64 { return int64(1024 + 6*len(key.name)) }

// slot finds or makes the slot of a name. used is what all services take.
func (r *renamed) slot(key staticKey, used *atomic.Int64) *slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.slots[key]; found != nil {
		return found
	}
	made := &slot{}
	if r.over || len(r.slots) >= maxRenamed {
		return made
	}
	cost := renamedCost(key)
	if used.Add(cost) > maxRenamedSize {
		used.Add(-cost)
		return made
	}
	if r.slots == nil {
		r.slots = map[staticKey]*slot{}
	}
	r.slots[key], r.size = made, r.size+cost
	return made
}

// succeed takes over the names of a service of another form, with what they
// take.
func (r *renamed) succeed(old *renamed) {
	old.mu.Lock()
	defer old.mu.Unlock()
	r.slots = make(map[staticKey]*slot, len(old.slots))
	for key, s := range old.slots {
		r.slots[key] = &slot{fallback: s.peek()}
	}
	r.size, old.size, old.over = old.size, 0, true
}

// drop gives back what the names of a service that is gone take.
func (r *renamed) drop(used *atomic.Int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used.Add(-r.size)
	r.size, r.over = 0, true
}
