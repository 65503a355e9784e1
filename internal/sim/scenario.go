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
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/load"
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
	HealthDelay time.Duration // from a failure, or its end, until all clients know it
	Timeout     time.Duration // longest time at an endpoint, of single requests with the network's latency; 0 = 1 s

	// Requests plays single requests in place of rates, as Serving says.
	Requests bool
	Serving  []Serving
	Troubles []Trouble
	Ejection Ejection
	// StartedWithin says that all clients started within such a time of each other, as in a test:
	// what they do at intervals, they do as near together. 0 = each at any time.
	StartedWithin time.Duration
	// Served lets Envoys of Isobar also do what the cluster says that it serves: leave
	// endpoints, and limit the requests in progress. It needs single requests.
	Served bool

	Capacities       []Capacity
	Metrics          []Metric
	Outages          []Outage
	Losses           []Loss           // of inputs
	Degradation      plan.Degradation // what they do; zero = the defaults
	Declared         []Capacity       // the configured capacities, as factors of the topology's; 0 = not configured
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

// Shape is a quantity over time. It must be a function of its argument alone.
type Shape func(at time.Duration) float64

// Constant is the same at all times.
func Constant(v float64) Shape { return func(time.Duration) float64 { return v } }

// Times multiplies shapes.
func Times(shapes ...Shape) Shape {
	return func(at time.Duration) float64 {
		v := 1.0
		for _, s := range shapes {
			v *= s(at)
		}
		return v
	}
}

// Step is 1 before a moment and factor from then on.
func Step(when time.Duration, factor float64) Shape {
	return func(at time.Duration) float64 {
		if at < when {
			return 1
		}
		return factor
	}
}

// Flash is factor from a moment on for a while, else 1.
func Flash(when, length time.Duration, factor float64) Shape {
	return func(at time.Duration) float64 {
		if at < when || at >= when+length {
			return 1
		}
		return factor
	}
}

// Square alternates between high, for the first half of each period, and low. A
// period begins at start.
func Square(period, start time.Duration, low, high float64) Shape {
	return func(at time.Duration) float64 {
		if ((at-start)%period+period)%period < period/2 {
			return high
		}
		return low
	}
}

// Wave varies between 1-amplitude and 1+amplitude, with its first peak at a moment.
func Wave(period, peak time.Duration, amplitude float64) Shape {
	return func(at time.Duration) float64 {
		return 1 + amplitude*math.Cos(2*math.Pi*float64(at-peak)/float64(period))
	}
}

// Ramp goes in a straight line from 1 at one moment to factor at another.
func Ramp(from, to time.Duration, factor float64) Shape {
	return func(at time.Duration) float64 {
		switch {
		case at <= from:
			return 1
		case at >= to:
			return factor
		default:
			return 1 + (factor-1)*float64(at-from)/float64(to-from)
		}
	}
}

// Loss takes an input of decisions away for a while: load reports of clients,
// what checkers know of health, or what another control plane lists; or else
// what is decided, before it reaches clients.
type Loss struct {
	Input plan.InputKind // or Pushes
	// Scope are the clients that can't report, or that nothing reaches: a locality,
	// or a region or zone with all in it; zero = all. Health and topology are lost
	// as a whole.
	Scope isobar.Locality
	// From and To are since the start. Clients count on and report the whole time
	// at once when they can. Of the assignments that did not reach them, they get
	// the newest.
	From, To time.Duration
}

// Pushes is what a Loss removes that is no input: assignments on their way to
// clients, which go on with what they have.
const Pushes plan.InputKind = "pushes"

// lost returns the loss of an input that is going on; nil when there is none.
func (sc *Scenario) lost(kind plan.InputKind, at isobar.Locality, now time.Duration) *Loss {
	for i := range sc.Losses {
		x := &sc.Losses[i]
		if x.Input == kind && now >= x.From && now < x.To && (!x.someOnly() || within(at, x.Scope)) {
			return x
		}
	}
	return nil
}

// someOnly reports whether it may be of some clients only.
func (x *Loss) someOnly() bool { return x.Input == plan.InputReports || x.Input == Pushes }

// ages tells the planner how old its inputs are.
func (sc *Scenario) ages(services []*service, now time.Duration) []plan.InputAge {
	var out []plan.InputAge
	for _, kind := range []plan.InputKind{plan.InputHealth, plan.InputTopology} {
		x := sc.lost(kind, isobar.Locality{}, now)
		if x == nil {
			continue
		}
		for _, s := range services {
			out = append(out, plan.InputAge{Service: s.spec.Name, Kind: kind, Age: load.Age{Some: now - x.From, Most: now - x.From}})
		}
	}
	return out
}

// Serving is how endpoints serve single requests; see [Scenario.Requests].
type Serving struct {
	Service  string          // empty = all
	Locality isobar.Locality // a locality, or a region or zone with all in it; zero = all
	// Variation is the squared coefficient of variation of the service time; 0 = 1,
	// an exponential distribution.
	Variation float64
	// Waiting is how many requests may wait in an endpoint: it refuses more. 0 = it
	// refuses none.
	Waiting int
	// Wastes says that requests are worked on that their clients gave up.
	Wastes bool
}

// Trouble is what happens to requests without a server being busy for it.
type Trouble struct {
	Service  string          // empty = all
	Locality isobar.Locality // a locality, or a region or zone with all in it; zero = all
	Share    float64         // of the endpoints of each locality, the first ones; 0 = all
	From, To time.Duration
	SlowMS   float64 // that each request takes longer, as for a slow dependency
	Failing  float64 // part of the requests that fails whatever the load
	Hangs    bool    // no request is answered: all time out
}

// hits reports whether the trouble concerns an endpoint at a moment.
func (t *Trouble) hits(s *service, e *endpoint, index int, at time.Duration) bool {
	x := &s.sites[e.at]
	if at < t.From || at >= t.To || (t.Service != "" && t.Service != s.spec.Name) || !within(x.locality, t.Locality) {
		return false
	}
	hit := x.end - x.first
	if t.Share > 0 {
		hit = int(t.Share*float64(hit) + 0.5)
	}
	return index-x.first < hit
}

// told is the topology as Isobar is told it.
func (sc *Scenario) told() *isobar.Topology {
	if !sc.Undeclared && len(sc.Declared) == 0 {
		return sc.Topology
	}
	out := *sc.Topology
	out.Services = slices.Clone(out.Services)
	for i := range out.Services {
		s := &out.Services[i]
		s.Localities = slices.Clone(s.Localities)
		for j := range s.Localities {
			l := &s.Localities[j]
			by := sc.declared(s.Name, l.Locality)
			if by == 1 {
				continue
			}
			// Who is wrong about the rate knows nothing of concurrency.
			l.MaxRate, l.Concurrency = by*l.MaxRate, 0
			l.Endpoints = slices.Clone(l.Endpoints)
			for k := range l.Endpoints {
				l.Endpoints[k].MaxRate, l.Endpoints[k].Concurrency = by*l.Endpoints[k].MaxRate, 0
			}
		}
	}
	return &out
}

// declared is the factor between the configured capacity and that of the topology; 0 = none is
// configured.
func (sc *Scenario) declared(service string, l isobar.Locality) float64 {
	if sc.Undeclared {
		return 0
	}
	by := 1.0
	for i := range sc.Declared {
		if d := &sc.Declared[i]; (d.Service == "" || d.Service == service) && within(l, d.Locality) {
			by *= max(0, d.Factor(0))
		}
	}
	return by
}
