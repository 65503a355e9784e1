package view

import (
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Lookup is LookupAs for plain v3.
func (v *View) Lookup(kind resource.Kind, name string) *Resource {
	return v.LookupAs(rpc.As{}, kind, name)
}
