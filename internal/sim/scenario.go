// Package sim runs a fleet in virtual time: clients with changing demand, the
// distance between zones, a queue at each endpoint, reports and pushes that
// take their time, endpoints that fail. What decides is real: the plan code of
// the server, and the data planes as package dataplane predicts them. Other
// policies run in the same fleet, to compare.
//
// Requests are rates, or single ones where [Scenario.Requests] says so. A run has no clock and no
// randomness but what is derived from its seed, so the same scenario gives the
// same bytes.
package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Scenario is a fleet and what happens to it.
type Scenario struct {
	Seed uint64
	// Topology is what Isobar is told: also its capacities, which Capacities
	// may belie.
	Topology *isobar.Topology
	Sources  []Source

	Length time.Duration
	Warmup time.Duration // left out of the results; below Length
	Step   time.Duration // resolution; 0 = a twentieth of Interval, or a fifth in large fleets

	Tick        time.Duration // between decisions
	Interval    time.Duration // between load reports of a client
	ReportDelay Delay         // from the end of a window to its arrival
	PushDelay   Delay         // from publishing to use and acknowledgement
	HealthDelay time.Duration // from a failure, or its end, to everybody's knowledge of it
	Timeout     time.Duration // longest time at an endpoint; 0 = 1 s

	// Requests plays single requests in place of rates, as Serving says.
	Requests bool
	Serving  []Serving
	Troubles []Trouble

	Capacities       []Capacity
	Metrics          []Metric
	Outages          []Outage
	Losses           []Loss           // of inputs
	Degradation      plan.Degradation // what they do; zero = the defaults
	Declared         []Capacity       // what Isobar is told of capacities, as factors of the topology's; 0 = nothing
	Undeclared       bool             // Isobar is not told what endpoints can serve; other policies are
	UtilizationNoise float64          // relative standard deviation of utilization as endpoints report it
	Price            Price

	// Marks are the moments, growing, from which it is measured how long shares
	// go on moving.
	Marks []time.Duration
}

// Source is clients of one service in one locality.
type Source struct {
	Service string
	From    isobar.Locality
	Client  string // the service that these clients are instances of, node.cluster; empty = "clients"
	Demand  Shape  // requests/s of all its clients together
	Noise   float64
	Clients int // streams; 0 = 5
	Kind    dataplane.Kind
	Silent  int // of the clients: they report no load
	Liars   int // of the clients: they report Lie times their load
	Lie     float64
	LieFrom time.Duration // before it, they tell the truth
	// LieInProgress is the factor on the requests in progress that liars report; nil =
	// they tell the truth about them.
	LieInProgress *float64
	Retries       int // attempts after the first, where single requests are played
}

// Delay is how long a message takes: Base and up to Jitter more, different for
// each message but never out of order.
type Delay struct{ Base, Jitter time.Duration }

// Capacity belies what the topology declares: what the endpoints really serve
// is Factor times that.
type Capacity struct {
	Service  string          // empty = all
	Locality isobar.Locality // a locality, or a region or zone with all in it
	Factor   Shape
}

// Outage lets endpoints fail all their requests for a while.
type Outage struct {
	Service  string          // empty = all
	Locality isobar.Locality // a locality, or a region or zone with all in it
	Share    float64         // of the endpoints of each locality, the first ones; 0 = all
	From, To time.Duration
	Period   time.Duration // > 0: flapping, down in the first half of each period
	// Unnoticed says that health checks see nothing: only load reports tell.
	Unnoticed bool
}

// Price is what requests cost that leave their zone or region, in dollars per
// million.
type Price struct{ CrossZone, CrossRegion float64 }

// Defaults of a scenario.
const (
	defaultClients = 5
	defaultClient  = "clients"
	defaultTimeout = time.Second
	stepsPerReport = 20

	// Fleets of many clients take longer steps: what happens within a second
	// matters less there than that they can be run at all.
	largeFleet          = 5_000
	stepsPerReportLarge = 5
)

func (o *Outage) down(at time.Duration) bool {
	if at < o.From || at >= o.To {
		return false
	}
	return o.Period <= 0 || (at-o.From)%o.Period < o.Period/2
}

// lieAt is the factor on what its liars report of a window that begins then.
func (s *Source) lieAt(at time.Duration) float64 {
	if at < s.LieFrom {
		return 1
	}
	return s.Lie
}

// within reports whether l is scope, or lies in it.
func within(l, scope isobar.Locality) bool {
	return scope.IsZero() || (l.Region == scope.Region &&
		(scope.Zone == "" || l.Zone == scope.Zone) && (scope.SubZone == "" || l.SubZone == scope.SubZone))
}

// startTime is when every run begins; any moment will do.
var startTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Metric is a quantity that endpoints report with their responses, under a name
// of their own. It grows in a straight line with their true utilization.
type Metric struct {
	Service  string
	Locality isobar.Locality // a locality, or a region or zone with all in it; zero = all
	Name     string
	AtRest   float64
	Full     float64 // at utilization 1
}
