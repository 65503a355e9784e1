package view

import (
	"sync/atomic"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
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
