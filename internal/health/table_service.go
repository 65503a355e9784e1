package health

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// ServiceTable is what a table says of one service. Who asks for all endpoints
// of a service has it looked up once. Immutable.
type ServiceTable struct {
	overrides []Override // of the service alone, sorted by address
	verdicts  *serviceVerdicts
}

// Of gives what the table says of a service.
func (t Table) Of(service string) ServiceTable {
	from, _ := t.find(Key{Service: service})
	to := from
	for to < len(t.overrides) && t.overrides[to].Service == service {
		to++
	}
	return ServiceTable{overrides: t.overrides[from:to], verdicts: t.verdicts.service(service)}
}

// Status gives the health of an endpoint: the override, else the verdict, else
// what the configuration says. A verdict can't undo what is configured as
// unfit: whoever wrote draining, unhealthy or degraded there knows more than a
// probe.
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

// pending tells whether an endpoint is without traffic only because it waits
// for its first verdict: that says nothing of its health.
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
