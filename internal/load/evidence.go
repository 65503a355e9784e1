package load

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// PlannedSource is what was published for one source of a service, and since
// when enough of its streams obey it.
type PlannedSource struct {
	Source isobar.Locality
	Shares []PlannedShare // sorted by locality; of priority 0
	// Acked is when 95% of the source's subscribed streams had acknowledged
	// the assignment that is in force; zero while they have not.
	Acked time.Time
	// Streams is how many streams of the source subscribe to the service.
	Streams int
}

// PlannedShare is the share of a source's traffic that a locality should get.
type PlannedShare struct {
	Locality isobar.Locality
	Share    float64 // 0 to 1
}

// Findings is what the comparison of landings with the plan tells about one
// service. All slices are sorted by source, then locality.
type Findings struct {
	Service string
	// Background is load that lands beyond plan: per (source, locality),
	// requests/s to count as background there and to take off the source's
	// steerable demand.
	Background []Landing
	// Barred lists the (source, locality) pairs that a source cannot reach.
	Barred []Barred
	// Unreachable lists the localities that every source with a stake agrees
	// cannot be reached: capacity 0, "unreachable (observed)".
	Unreachable []isobar.Locality
	// Deviating names sources that do not follow their shares, and the likely
	// cause, for explain.
	Deviating []Deviation
}

// Landing is a rate from a source into a locality.
type Landing struct {
	Source   isobar.Locality
	Locality isobar.Locality
	Rate     float64 // requests/s
}

// Barred is a pair that lands almost nothing of what was planned.
type Barred struct {
	Source   isobar.Locality
	Locality isobar.Locality
	Since    time.Time
	Landed   float64 // fraction of plan that landed when it was barred
}

// Deviation is a source whose landings differ from its plan.
type Deviation struct {
	Source isobar.Locality
	Points float64 // largest difference of a share, percent
	Cause  string  // e.g. "no locality-weighted policy", "zone-aware routing", "panic", "failover"
}
