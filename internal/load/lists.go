package load

import (
	"slices"
	"strings"
)

// Bounds on lists whose names come from clients. Names beyond them are left out of the list, not
// of the sums.
const (
	maxNames     = 256    // metrics, or categories of drops
	maxSites     = 4_096  // localities of a service, and those that it has; see countLocalities
	maxEndpoints = 65_536 // of a locality
	maxClients   = 4_096  // client services of a source
)

// Bounds on the remembered state of one stream. State beyond them is lost, sums included: only
// clients that invent names reach them.
const (
	maxEntries     = 20_000 // of a report that is made of several
	maxWindowSites = 1_024  // localities of a service
)

func scaleEndpoints(es []EndpointLoad, by float64) {
	for i := range es {
		es[i].Issued *= by
		es[i].Errors *= by
	}
}

func addMetric(to []MetricSum, m MetricSum) []MetricSum {
	i, found := slices.BinarySearchFunc(to, m.Name, func(x MetricSum, n string) int { return strings.Compare(x.Name, n) })
	switch {
	case found:
	case len(to) >= maxNames:
		return to
	default:
		return slices.Insert(to, i, m)
	}
	to[i].Requests += m.Requests
	to[i].Total += m.Total
	return to
}

func addEndpoint(to []EndpointLoad, e EndpointLoad) []EndpointLoad {
	i, found := slices.BinarySearchFunc(to, e.Address, func(x EndpointLoad, a string) int { return strings.Compare(x.Address, a) })
	switch {
	case found:
	case len(to) >= maxEndpoints:
		return to
	default:
		return slices.Insert(to, i, e)
	}
	to[i].Issued += e.Issued
	to[i].Errors += e.Errors
	return to
}

func addDrop(to []CategoryDrop, d CategoryDrop) []CategoryDrop {
	i, found := slices.BinarySearchFunc(to, d.Category, func(x CategoryDrop, c string) int { return strings.Compare(x.Category, c) })
	switch {
	case found:
		to[i].Rate += d.Rate
		return to
	case d.Category == "" || len(to) >= maxNames:
		return to
	default:
		return slices.Insert(to, i, d)
	}
}

// addClient adds the load of a client service. Those that are services count however many others clients name.
func addClient(to []ClientLoad, name string, rate float64, isService func(name string) bool) []ClientLoad {
	i, found := slices.BinarySearchFunc(to, name, func(c ClientLoad, n string) int { return strings.Compare(c.Name, n) })
	switch {
	case found:
		to[i].Rate += rate
		return to
	case len(to) >= maxClients && !isService(name):
		return to
	default:
		return slices.Insert(to, i, ClientLoad{Name: name, Rate: rate})
	}
}
