package sim

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// told is the topology as Isobar is told it.
func (sc *Scenario) told() *isobar.Topology {
	if !sc.Undeclared && len(sc.Declared) == 0 {
		return sc.Topology
	}
	out := *sc.Topology
	out.Services = slices.Clone(out.Services)
	for i := range out.Services {
		s := &out.Services[i]
		s.Localities = slices.Clone(s.Localities)
		for j := range s.Localities {
			l := &s.Localities[j]
			by := sc.declared(s.Name, l.Locality)
			if by == 1 {
				continue
			}
			// Who is wrong about the rate knows nothing of concurrency.
			l.MaxRate, l.Concurrency = by*l.MaxRate, 0
			l.Endpoints = slices.Clone(l.Endpoints)
			for k := range l.Endpoints {
				l.Endpoints[k].MaxRate, l.Endpoints[k].Concurrency = by*l.Endpoints[k].MaxRate, 0
			}
		}
	}
	return &out
}

// declared is the factor by which what Isobar is told of a capacity differs from
// the topology; 0 = it is told nothing.
func (sc *Scenario) declared(service string, l isobar.Locality) float64 {
	if sc.Undeclared {
		return 0
	}
	by := 1.0
	for i := range sc.Declared {
		if d := &sc.Declared[i]; (d.Service == "" || d.Service == service) && within(l, d.Locality) {
			by *= max(0, d.Factor(0))
		}
	}
	return by
}
