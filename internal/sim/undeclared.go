package sim

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// told is the topology as Isobar is told it.
func (sc *Scenario) told() *isobar.Topology {
	if !sc.Undeclared {
		return sc.Topology
	}
	out := *sc.Topology
	out.Services = slices.Clone(out.Services)
	for i := range out.Services {
		s := &out.Services[i]
		s.Localities = slices.Clone(s.Localities)
		for j := range s.Localities {
			l := &s.Localities[j]
			l.MaxRate, l.Concurrency = 0, 0
			l.Endpoints = slices.Clone(l.Endpoints)
			for k := range l.Endpoints {
				l.Endpoints[k].MaxRate, l.Endpoints[k].Concurrency = 0, 0
			}
		}
	}
	return &out
}
