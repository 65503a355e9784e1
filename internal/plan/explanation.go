package plan

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
)

// Explanation answers why the clients of one service in one source locality
// get the weights that they get: what went in, what was decided, and what
// bound the decision. Rates are requests/s, latencies milliseconds, shares,
// utilizations and coverage fractions from 0 to 1. Slices are never nil, so
// that JSON always shows a list.
type Explanation struct {
	Service string          `json:"service"`
	Source  isobar.Locality `json:"source"` // empty: clients that told no locality
	Version string          `json:"version"`
	Made    time.Time       `json:"made"`

	// Summary is the whole explanation in one sentence.
	Summary string `json:"summary"`

	Mode     isobar.Mode `json:"mode"`
	MaxShift float64     `json:"max_shift,omitempty"` // percentage points; mode bounded only

	Policy    isobar.Policy `json:"policy"`
	PolicyGap float64       `json:"policy_gap,omitempty"` // what a policy other than latency costs above the bound, as a fraction of its cost
	PolicyMS  float64       `json:"policy_ms,omitempty"`  // the same in mean latency above the solution's

	Coverage float64 `json:"coverage"`       // share of the last known demand whose nodes have reported to this process
	Hold     string  `json:"hold,omitempty"` // why weights must not move now

	DegradationLevel   DegradationLevel `json:"degradation_level"`   // how degraded the service is because inputs are missing
	DegradationApplies bool             `json:"degradation_applies"` // false: its mode, or its policy, does not look at what is missing
	Inputs             []InputState     `json:"inputs"`              // how fresh each of them is

	Damping string `json:"damping,omitempty"` // of shares that oscillated by themselves; empty while nothing is damped

	Rollout *RolloutExplained `json:"rollout,omitempty"` // how far mode auto has come; nil with other modes
	Score   *ScoreExplained   `json:"score,omitempty"`   // what was predicted of the service against what was seen; nil while there is too little to tell

	Paused *Pause `json:"paused,omitempty"` // by an operator; hold says it in words

	Demand     DemandExplained     `json:"demand"`
	Localities []LocalityExplained `json:"localities"` // sorted by distance, then name
	Binding    BindingExplained    `json:"binding"`
	RunnerUp   *RunnerUp           `json:"runner_up,omitempty"` // nil where there is no other allowed locality

	Drop         float64          `json:"drop"`              // fraction that the clients are told to drop
	Classes      []ClassExplained `json:"classes,omitempty"` // who of them is shed first; none where all are alike
	CeilingScale float64          `json:"ceiling_scale"`     // factor by which ceilings were raised because demand does not fit; 1 = it fits

	// RequestLimit is how many requests each client may have in progress, so that
	// requests do not time out in queues; 0 = Isobar sets no limit.
	RequestLimit uint32 `json:"request_limit,omitempty"`

	// Gap is how far the solution can be from the optimum at most, as a
	// fraction of its cost; PlanGap is the same for the paced and rounded
	// assignment that is served.
	Gap     float64 `json:"gap"`
	PlanGap float64 `json:"plan_gap"`

	// Earlier tells that prices, costs and targets are of an earlier decision, which was made for
	// another capacity: a change of health or endpoints carries the shares over at once, and the
	// next decision makes new ones. Empty while they are of what is there now.
	Earlier string `json:"earlier_decision,omitempty"`

	Reasons   []assign.Reason   `json:"reasons"`             // clamps, holds and fallbacks that shaped the shares
	Deviation *DeviationSeen    `json:"deviation,omitempty"` // nil while the source follows its shares
	Warnings  []string          `json:"warnings"`            // assumed latencies, capacity that is not declared, broken invariants
	Clients   []ClientExplained `json:"clients"`             // who sends this demand

	Calls []CallSeen `json:"calls"` // services that call this one, as configured and as measured

	// DataPlanes is what each kind of client, with its defaults, does with the
	// assignment that is served.
	DataPlanes dataplane.Predictions `json:"data_planes"`
}

// DemandExplained is the demand of the source and how it came to be.
type DemandExplained struct {
	Rate        float64 `json:"rate"`        // what the plan was made for: smoothed, held, capped
	Raw         float64 `json:"raw"`         // of the last windows, unsmoothed
	Variability float64 `json:"variability"` // standard deviation within report intervals that the shares were made for, as a fraction; 0 = none beyond doubt
	Saved       float64 `json:"saved"`       // remembered from before a restart; 0 when not in use
	Dropped     float64 `json:"dropped"`     // dropped by the clients
	Errors      float64 `json:"errors"`      // failed
	OffPlan     float64 `json:"off_plan"`    // lands beyond plan: counted as unmanaged load and taken off what is steered
	Nodes       int     `json:"nodes"`       // streams with a fresh report
	Held        int     `json:"held"`        // streams whose last rate is held because a report is missing
	Service     float64 `json:"service"`     // demand of the whole service, all sources
	Measured    bool    `json:"measured"`    // false: nothing was ever reported from here
	WindowMS    float64 `json:"window_ms"`   // age of the oldest part of raw when the plan was made

	ReportAge float64 `json:"report_age_seconds,omitempty"` // age of the newest load report from here when the plan was made; 0 = none is known
}

// LocalityExplained is one locality of the service as seen from the source.
type LocalityExplained struct {
	Locality isobar.Locality `json:"locality"`
	Tier     int             `json:"tier"` // priority in which the clients have it; -1 = none

	Distance float64 `json:"distance_ms"` // network latency plus egress price
	Assumed  bool    `json:"assumed,omitempty"`
	Price    float64 `json:"price_ms"`           // what one more request/s here costs all requests together
	Calls    float64 `json:"calls_ms,omitempty"` // the part of the price that is the calls of a request served here, with all that follows
	Cost     float64 `json:"cost_ms"`            // distance + price: the solver sends where it is least

	Endpoints int `json:"endpoints"`
	Healthy   int `json:"healthy"`  // usable by every kind of client
	Draining  int `json:"draining"` // taken out of traffic by an operator, the configuration or a provider: no failure

	CapacityNominal float64 `json:"capacity_nominal"` // if every endpoint were healthy
	Capacity        float64 `json:"capacity"`         // what healthy endpoints can serve
	Ceiling         float64 `json:"ceiling"`          // utilization not to exceed
	Limit           float64 `json:"limit"`            // steered requests/s that fit beneath the ceiling
	UnmanagedLoad   float64 `json:"unmanaged_load"`
	Load            float64 `json:"load"`        // steered requests/s of all sources under this plan, without unmanaged load
	Utilization     float64 `json:"utilization"` // (load + unmanaged load) / capacity
	Measured        float64 `json:"measured"`    // requests/s that landed here from all sources
	ORCA            float64 `json:"orca"`        // utilization that the endpoints report; 0 = none

	Learned *LearnedExplained `json:"learned,omitempty"` // nil where no utilization was ever reported

	Observed string `json:"observed,omitempty"` // what its requests tell about its capacity, in one sentence; empty where nothing was observed

	Counts string           `json:"counts"`           // what allows the least: the metric of a limit, or a Counts constant
	Limits []LimitExplained `json:"limits,omitempty"` // in the order of the configuration

	Target        float64 `json:"target_share"`            // what the solver, or another policy, wants for this source
	Optimum       float64 `json:"optimum_share,omitempty"` // what the solver would do, where another policy decides
	Published     float64 `json:"published_share"`         // what the clients are told
	ObservedShare float64 `json:"observed_share"`          // what the clients did
	Latency       float64 `json:"latency_ms"`              // mean, by Little's law over long windows; 0 = not known

	Preferred bool    `json:"preferred,omitempty"` // filled before localities that are not
	Egress    float64 `json:"egress_ms,omitempty"` // the part of the distance that is the egress price
	Forbidden bool    `json:"forbidden,omitempty"` // isolation or residency keep the source away, whatever happens
	Keeps     float64 `json:"keeps,omitempty"`     // part of its traffic that it keeps, with fewer healthy endpoints than the failover threshold; 0 = all
	Reserve   bool    `json:"reserve,omitempty"`   // isolation keeps the source away while nearer regions have healthy capacity

	Barred      bool `json:"barred,omitempty"`      // this source was seen not to reach it: a probe only
	Unreachable bool `json:"unreachable,omitempty"` // no source was seen to reach it: capacity 0
	// Outage says with its evidence that requests fail there from all sources, or did
	// until a moment ago; empty where they do not.
	Outage  string `json:"outage,omitempty"`
	Drained bool   `json:"drained,omitempty"` // too few endpoints are healthy: not used
	Full    bool   `json:"full,omitempty"`    // at its ceiling
}

// BindingExplained names what keeps the source from its nearest locality.
type BindingExplained struct {
	Kind     string           `json:"kind"`               // one of the Binding constants
	Locality *isobar.Locality `json:"locality,omitempty"` // whose ceiling or health it is
	Text     string           `json:"text"`
}

// The kinds of binding constraints.
const (
	BindingNone    = "none"     // everything goes to the nearest locality, or there is no demand that anything could bind
	BindingQueue   = "queueing" // nothing is full; queues make sharing cheaper than the nearest alone
	BindingCeiling = "ceiling"  // a nearer locality is at its ceiling
	BindingLimit   = "limit"    // a nearer locality is at a limit of its endpoints
	BindingHealth  = "health"   // a nearer locality has no healthy capacity
	BindingReach   = "reach"    // a nearer locality is barred or unreachable
	BindingMode    = "mode"     // mode observe or bounded keeps the baseline
	BindingPolicy  = "policy"   // a policy that is not about latency decides
	BindingRule    = "rule"     // isolation or residency forbid a nearer locality
	BindingHold    = "hold"     // weights are held
	BindingPacing  = "pacing"   // on the way: the step of a tick binds
	BindingInput   = "input"    // an input has been missing for long: shares move towards a split by capacity
)

// RunnerUp is the best locality that gets nothing from the source.
type RunnerUp struct {
	Locality isobar.Locality `json:"locality"`
	Worse    float64         `json:"worse_ms"` // by how much its cost is above the cheapest one in use
}

// ClientExplained is a client service and the part of the demand it sends.
type ClientExplained struct {
	Client string  `json:"client"` // node.cluster
	Rate   float64 `json:"rate"`
}
