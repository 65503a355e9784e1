package health

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// ServiceTable is a table's part for one service. Code that reads all endpoints of a service
// looks it up once. Immutable.
type ServiceTable struct {
	overrides []Override // of the service alone, sorted by address
	verdicts  *serviceVerdicts
}

// Of returns the table's part for a service.
func (t Table) Of(service string) ServiceTable {
	from, _ := t.find(Key{Service: service})
	to := from
	for to < len(t.overrides) && t.overrides[to].Service == service {
		to++
	}
	return ServiceTable{overrides: t.overrides[from:to], verdicts: t.verdicts.service(service)}
}

// Status returns the health of an endpoint: the override, else the verdict, else the configured
// health. A verdict does not override a configured draining, unhealthy or degraded: the author of
// the configuration knows more than a probe.
func (t ServiceTable) Status(e *isobar.Endpoint) isobar.HealthStatus {
	if status, found := t.override(e.Address); found {
		return status
	}
	b, found := t.verdicts.belief(e.Address)
	switch {
	case !found, down(e.Health), e.Health == isobar.Degraded && b.status == isobar.Healthy:
		return e.Health
	default:
		return b.status
	}
}

// pending reports whether an endpoint is without traffic only because it waits for its first
// verdict: that is no evidence about its health.
func (t ServiceTable) pending(e *isobar.Endpoint) bool {
	if _, found := t.override(e.Address); found || down(e.Health) {
		return false
	}
	b, _ := t.verdicts.belief(e.Address)
	return b.pending
}

func (t ServiceTable) override(address string) (isobar.HealthStatus, bool) {
	if len(t.overrides) == 0 {
		return isobar.Unknown, false
	}
	i, found := slices.BinarySearchFunc(t.overrides, address, func(o Override, a string) int { return strings.Compare(o.Address, a) })
	if !found {
		return isobar.Unknown, false
	}
	return t.overrides[i].Status, true
}

// down tells the states that no client sends new traffic to.
func down(h isobar.HealthStatus) bool {
	return h == isobar.Unhealthy || h == isobar.Draining || h == isobar.Timeout
}
