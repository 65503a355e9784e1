package discovery

import (
	"maps"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// sinces says when each override was set. Values are never written once they
// are part of contents. An override that an earlier version saved has none.
type sinces map[health.Key]time.Time

// with gives a copy with a time added.
func (s sinces) with(k health.Key, at time.Time) sinces {
	out := maps.Clone(s)
	if out == nil {
		out = sinces{}
	}
	out[k] = at
	return out
}

// of gives the times of the overrides in a table alone.
func (s sinces) of(t health.Table) sinces {
	out := sinces{}
	for _, o := range t.Overrides() {
		if at, known := s[o.Key]; known {
			out[o.Key] = at
		}
	}
	return out
}

// Overrides lists the health that operators set, sorted by service and
// address, with the locality in which each endpoint stands now.
func (r *Registry) Overrides() []isobar.HealthOverride {
	s := r.settled.Load()
	set := s.health.Overrides()
	out := make([]isobar.HealthOverride, 0, len(set))
	where := map[string]isobar.Locality{} // of the endpoints of one service
	for i, o := range set {
		if i == 0 || set[i-1].Service != o.Service {
			where = localitiesOf(s.topology, o.Service)
		}
		out = append(out, isobar.HealthOverride{
			Service: o.Service, Address: o.Address, Locality: where[o.Address], Status: o.Status, Since: s.since[o.Key],
		})
	}
	return out
}

// localitiesOf tells where the endpoints of a service are, by address.
func localitiesOf(t *isobar.Topology, service string) map[string]isobar.Locality {
	out := map[string]isobar.Locality{}
	svc, found := t.Service(service)
	if !found {
		return out
	}
	for i := range svc.Localities {
		for j := range svc.Localities[i].Endpoints {
			out[svc.Localities[i].Endpoints[j].Address] = svc.Localities[i].Locality
		}
	}
	return out
}
