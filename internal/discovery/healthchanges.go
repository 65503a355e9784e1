package discovery

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plural"
)

// maxHealthChanges bounds how many health changes of operators the registry remembers.
const maxHealthChanges = 100

// HealthChange is a change of the health of endpoints by an operator. It is in memory only: the
// history of plans keeps who gave it, and why. Immutable.
type HealthChange struct {
	isobar.HealthChange

	Revision uint64 // of the topology that has it first
	What     string // what it does, for people
}

// whatOf describes a change for people. before is the health when it came.
func whatOf(svc *isobar.Service, o *isobar.HealthChange, before health.Table) string {
	var places []isobar.Locality
	whom, cleared := plural.Count(len(o.Addresses), "endpoint", "endpoints"), "end of the drain of "
	set := map[string]isobar.HealthStatus{}
	for _, x := range before.Overrides() {
		if x.Service == o.Service {
			set[x.Address] = x.Status
		}
	}
	for _, a := range o.Addresses {
		l, e, found := svc.Endpoint(a)
		if !found {
			continue
		}
		if len(o.Addresses) == 1 {
			whom = "endpoint " + e.Address
		}
		if !slices.Contains(places, l) {
			places = append(places, l)
		}
		if set[e.Address] != isobar.Draining {
			cleared = "end of the health that operators set for "
		}
	}
	if len(places) == 1 {
		whom += " in " + places[0].String()
	}
	switch o.Status {
	case isobar.Draining:
		return "drain of " + whom
	case isobar.Unknown:
		return cleared + whom
	default:
		return fmt.Sprintf("%s set %s", whom, o.Status)
	}
}

// origin tells when, by whom and why an override was set.
type origin struct {
	since       time.Time
	who, reason string
}

// origins has the origin of each override. Values are never written once they
// are part of contents. An override that an earlier version saved may have none.
type origins map[health.Key]origin

// with returns a copy with the origin of an override added.
func (s origins) with(k health.Key, o origin) origins {
	out := maps.Clone(s)
	if out == nil {
		out = origins{}
	}
	out[k] = o
	return out
}

// of returns the origins of the overrides in a table alone.
func (s origins) of(t health.Table) origins {
	out := origins{}
	for _, o := range t.Overrides() {
		if by, known := s[o.Key]; known {
			out[o.Key] = by
		}
	}
	return out
}

// equal reports whether two have the same origins of the same overrides.
func (s origins) equal(other origins) bool {
	return maps.EqualFunc(s, other, func(a, b origin) bool {
		return a.since.Equal(b.since) && a.who == b.who && a.reason == b.reason
	})
}
