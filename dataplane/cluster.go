// Package dataplane predicts what Envoy and gRPC do with an endpoint
// assignment: which priority takes how much, when panic sets in, and what share
// of the traffic each locality and each endpoint gets. It works on plain
// values and follows the integer arithmetic of the data planes.
//
// Formulas (Envoy's load balancer; gRPC's priority and weighted-locality
// policies), with n = hosts - excluded hosts and f = the overprovisioning
// factor in percent; hosts that drain are excluded:
//
//	H_p = min(100, f*healthy/n)   D_p = min(100, f*degraded/n)   0 when n = 0
//	N   = min(100, sum H + sum D)
//	healthy load of p = min(what remains, H_p*100/N), in order; degraded likewise
//	panic of p        = N < 100 and 100*(healthy+degraded)/n < threshold, in whole percent
//	locality weight   = w * min(1, f/100 * eligible/n of the locality)
//
// gRPC knows no overprovisioning and no panic: the first priority with a usable
// endpoint takes everything.
package dataplane

import "github.com/isobar-xds/isobar"

// DefaultOverprovisioningFactor is what Envoy uses where none is given, percent.
const DefaultOverprovisioningFactor = 140

// DefaultPanicThreshold is Envoy's, percent of hosts.
const DefaultPanicThreshold = 50

// Cluster is an assignment in plain values, as a client received it.
type Cluster struct {
	Priorities []Priority // in order; may be empty, and so may each of them
	// Drops holds the fraction that each drop category drops, in order, 0 to 1.
	Drops []float64
	// OverprovisioningFactor in percent; 0 = DefaultOverprovisioningFactor.
	OverprovisioningFactor uint32
	// WeightedPriorityHealth makes Envoy count host weights in place of hosts
	// when it works out how healthy a priority is.
	WeightedPriorityHealth bool
}

// Priority is the localities of one priority.
type Priority struct {
	Localities []Locality
}

// Locality is a locality with its weight within the priority.
type Locality struct {
	Locality  isobar.Locality
	Weight    uint32 // 0 = not set: never picked while another locality has one
	Endpoints []Endpoint
}

// Endpoint is one host.
type Endpoint struct {
	Address string
	Weight  uint32 // 0 = not set, which counts as 1
	Health  isobar.HealthStatus
	// Excluded hosts are not counted: Envoy leaves out those that wait for
	// their first active health check. It does the same with hosts that drain,
	// which need no mark here.
	Excluded bool
	// Repeated hosts have an address that came before in the assignment,
	// whatever its locality and priority: Envoy knows only the first.
	Repeated bool
	// Unweighted hosts came in a part of their locality that had no weight,
	// though another part had one: gRPC skips such a part.
	Unweighted bool
}

func (e *Endpoint) weight() uint64 { return uint64(max(1, e.Weight)) }

// excluded reports whether Envoy leaves the endpoint out of every denominator. In
// panic it gets traffic nevertheless.
func (e *Endpoint) excluded() bool { return e.Excluded || e.Health == isobar.Draining }

// counted reports whether the endpoint is in the denominators.
func (e *Endpoint) counted() bool { return !e.excluded() && !e.Repeated }

// healthy reports whether the data planes count the endpoint as healthy.
func (e *Endpoint) healthy() bool { return e.counted() && e.Health.Usable() }

func (e *Endpoint) degraded() bool { return e.counted() && e.Health == isobar.Degraded }

// FromAssignment returns the plain values of an assignment.
func FromAssignment(a *isobar.Assignment) Cluster {
	if a == nil {
		return Cluster{}
	}
	c := Cluster{
		OverprovisioningFactor: a.OverprovisioningFactor, WeightedPriorityHealth: a.WeightedPriorityHealth,
		Priorities: make([]Priority, len(a.Priorities)),
	}
	if a.Drop > 0 {
		c.Drops = []float64{a.Drop}
	}
	for i, p := range a.Priorities {
		ls := make([]Locality, len(p))
		for j, lw := range p {
			if lw.EndpointGroup == nil {
				ls[j] = Locality{Weight: lw.Weight}
				continue
			}
			es := make([]Endpoint, len(lw.Endpoints))
			for k, e := range lw.Endpoints {
				es[k] = Endpoint{Address: e.Address, Weight: e.Weight, Health: e.Health}
			}
			ls[j] = Locality{Locality: lw.Locality, Weight: lw.Weight, Endpoints: es}
		}
		c.Priorities[i] = Priority{Localities: ls}
	}
	return c
}
