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
	NameClosest     = "closest"
	NameStatic      = "static"
	NameStaticMean  = "static-mean"
	NameWaterfall   = "waterfall-region"
)

// Isobar is the policy that this project is about.
func Isobar() Policy {
	return Policy{Name: NameIsobar, Title: "Isobar", make: []maker{newIsobar}}
}

// StaticMean is fixed weights that are made for the mean demand, whatever its peaks. Only the
// duel with real Envoys (bench/duel) uses it. It stays here because a policy acts on the
// private state of a simulated fleet.
func StaticMean() Policy {
	return Policy{Name: NameStaticMean, Title: "the best fixed weights for the mean demand", make: []maker{newStatic(meanDemand)}}
}

// Policies lists all policies, in the order of reports.
func Policies() []Policy {
	return []Policy{
		Isobar(),
		{Name: NameClairvoyant, Title: "the optimum, with all inputs true and at once", make: []maker{newClairvoyant}},
		{Name: NameClosest, Title: "the closest healthy locality only", make: []maker{local(policy.Nearest)}},
		{Name: "failover", Title: "locality failover by health: zone, region, rest", make: []maker{newFailover}},
		{Name: NameStatic, Title: "the best fixed weights known beforehand", make: []maker{newStatic(meanDemand), newStatic(peakDemand)}},
		{Name: NameWaterfall, Title: "waterfall by region", make: []maker{newCentral(policy.WaterfallByRegion)}},
		{Name: "waterfall-zone", Title: "waterfall by zone", make: []maker{newCentral(policy.WaterfallByZone)}},
		{Name: "rings", Title: "latency rings, opened at 55%, 65% and 80%", make: []maker{newCentral(byRings)}},
		{Name: "load-aware", Title: "Envoy's load_aware_locality over all localities", make: []maker{newLoadAware}},
		{Name: "isobar+load-aware", Title: "Envoy's load_aware_locality over the localities that Isobar chooses", make: []maker{newIsobarLoadAware}},
		{Name: "latency-band", Title: "each proxy widens its set of endpoints when they are slow", make: []maker{newBand}},
	}
}
