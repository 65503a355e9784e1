package discovery

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plural"
)

// maxOrders bounds how many orders of operators the registry remembers.
const maxOrders = 100

// Order is what an operator ordered of the health of endpoints. It is in memory only: the
// history of plans keeps who gave it, and why. Immutable.
type Order struct {
	Revision uint64 // of the topology that has it first
	Service  string
	What     string // what it does, for people
	Who      string
	Reason   string

	status    isobar.HealthStatus
	addresses []string
}

// whatOf describes an order for people.
func whatOf(svc *isobar.Service, o *Order) string {
	var places []isobar.Locality
	for _, a := range o.addresses {
		if l, _, found := svc.Endpoint(a); found && !slices.Contains(places, l) {
			places = append(places, l)
		}
	}
	whom := plural.Count(len(o.addresses), "endpoint", "endpoints")
	if len(places) == 1 {
		whom += " in " + places[0].String()
	}
	switch o.status {
	case isobar.Draining:
		return "drain of " + whom
	case isobar.Unknown:
		return "end of the drain of " + whom
	default:
		return fmt.Sprintf("%s set %s", whom, o.status)
	}
}

// givers finds the order by which each endpoint has its health, as far as it is remembered.
func givers(orders []Order) map[health.Key]*Order {
	out := map[health.Key]*Order{}
	for i := range orders {
		for _, a := range orders[i].addresses {
			out[health.Key{Service: orders[i].Service, Address: a}] = &orders[i]
		}
	}
	return out
}
