package view

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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

// ofClass gives the assignment as clients of a client service get it. What they
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
