package sim

import (
	"github.com/isobar-xds/isobar/internal/policy"
)

// Policy is one way to balance a fleet.
type Policy struct {
	Name  string // short and stable
	Title string // what it is, in a few words

	// make has one maker, or several of which the best counts.
	make []maker
}

type maker func(w *world) (balancer, error)

// The names of policies that others refer to.
const (
	NameIsobar      = "isobar"
	NameClairvoyant = "clairvoyant"
	NameStatic      = "static"
)

// Isobar is the policy that this project is about.
func Isobar() Policy {
	return Policy{Name: NameIsobar, Title: "Isobar", make: []maker{newIsobar}}
}

// Policies lists all policies, in the order of reports.
func Policies() []Policy {
	return []Policy{
		Isobar(),
		{Name: NameClairvoyant, Title: "the optimum, with all inputs true and at once", make: []maker{newClairvoyant}},
		{Name: "closest", Title: "the closest healthy locality only", make: []maker{local(policy.Nearest)}},
		{Name: "failover", Title: "locality failover by health: zone, region, rest", make: []maker{newFailover}},
		{Name: NameStatic, Title: "the best fixed weights known beforehand", make: []maker{newStatic(meanDemand), newStatic(peakDemand)}},
	}
}
