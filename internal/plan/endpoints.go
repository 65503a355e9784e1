package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// group is the endpoints of a locality while they are put together: those of
// the plan before as long as nothing differs, because most never change.
type group struct {
	*isobar.EndpointGroup

	shared bool // with the plan before: not to be written to
}

// newGroup begins a group; before may be nil.
func newGroup(sl *isobar.ServiceLocality, before *isobar.EndpointGroup) group {
	if before != nil && before.Locality == sl.Locality && before.Metadata == sl.Metadata && len(before.Endpoints) == len(sl.Endpoints) {
		return group{before, true}
	}
	return group{EndpointGroup: &isobar.EndpointGroup{
		Locality: sl.Locality, Metadata: sl.Metadata, Endpoints: make([]isobar.WeightedEndpoint, len(sl.Endpoints)),
	}}
}

// set sets endpoint i; those before it are set.
func (g *group) set(i int, e isobar.WeightedEndpoint) {
	switch {
	case !g.shared:
		g.Endpoints[i] = e
	case g.Endpoints[i] != e:
		own := *g.EndpointGroup
		own.Endpoints = slices.Clone(own.Endpoints)
		own.Endpoints[i] = e
		*g = group{EndpointGroup: &own}
	}
}
