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

// Ordered returns the orders in force that came after a revision of the topology, up to another.
func (r *Registry) Ordered(after, upTo uint64) []Order {
	var out []Order
	for _, o := range r.state.Load().orders {
		if o.Revision > after && o.Revision <= upTo {
			out = append(out, o)
		}
	}
	return out
}

// ordered adds an order, which the next revision carries.
func (c contents) ordered(o Order) contents {
	o.Revision = c.revision + 1
	if svc, ok := c.effective(o.Service); ok {
		o.What = whatOf(&svc.Service, &o)
	}
	kept := c.orders[max(0, len(c.orders)+1-maxOrders):]
	c.orders = append(slices.Clone(kept), o)
	return c
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
