package plan

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
)

// Explanation shows why the clients of one service in one source locality get their weights: the
// inputs, the decision, and the constraints on it. Rates are requests/s, latencies milliseconds,
// shares, utilizations and coverage fractions from 0 to 1. Slices are never nil, so that JSON always
// shows a list.
type Explanation struct {
	Service string          `json:"service"`
	Source  isobar.Locality `json:"source"` // empty: clients without a locality
	Version string          `json:"version"`
	Made    time.Time       `json:"made"`

	// Summary is the whole explanation in one sentence.
	Summary string `json:"summary"`

	Mode     isobar.Mode `json:"mode"`
	MaxShift float64     `json:"max_shift,omitempty"` // percentage points; mode bounded only

	Policy    isobar.Policy `json:"policy"`
	PolicyGap float64       `json:"policy_gap,omitempty"` // additional cost of a policy other than latency above the bound, as a fraction of its cost
	PolicyMS  float64       `json:"policy_ms,omitempty"`  // the same in mean latency above the solution's

	Coverage float64 `json:"coverage"`       // share of the last known demand whose nodes have reported to this process
	Hold     string  `json:"hold,omitempty"` // why weights must not move now

	DegradationLevel   DegradationLevel `json:"degradation_level"`   // how degraded the service is because inputs are missing
	DegradationApplies bool             `json:"degradation_applies"` // false: its mode or policy does not depend on the missing input
	Inputs             []InputState     `json:"inputs"`              // how fresh each of them is

	Damping string `json:"damping,omitempty"` // damping of shares that oscillated by themselves; empty while there is none

	Rollout *RolloutExplained `json:"rollout,omitempty"` // step of mode auto; nil with other modes
	Score   *ScoreExplained   `json:"score,omitempty"`   // predictions for the service compared with observations; nil while data is insufficient

	Paused *Pause `json:"paused,omitempty"` // pause by an operator; hold describes it

	Demand     DemandExplained     `json:"demand"`
	Localities []LocalityExplained `json:"localities"` // sorted by distance, then name
	Binding    BindingExplained    `json:"binding"`
	RunnerUp   *RunnerUp           `json:"runner_up,omitempty"` // nil if no other locality is allowed

	Drop         float64          `json:"drop"`              // fraction that the assignment makes the clients drop
	Classes      []ClassExplained `json:"classes,omitempty"` // classes in the order in which they are shed; none if the service has no classes
	CeilingScale float64          `json:"ceiling_scale"`     // factor by which ceilings were raised because demand does not fit; 1 = it fits

	// RequestLimit is the number of requests that each client may have in progress, so that requests
	// do not time out in queues; 0 = Isobar sets no limit.
	RequestLimit uint32 `json:"request_limit,omitempty"`

	// Gap is the largest possible distance of the solution from the optimum, as a fraction of its
	// cost; PlanGap is the same for the paced and rounded assignment that is served.
	Gap     float64 `json:"gap"`
	PlanGap float64 `json:"plan_gap"`

	// Earlier says that prices, costs and targets are from an earlier decision, which was made for
	// another capacity: a change of health or endpoints carries the shares over at once, and the
	// next decision computes new ones. Empty while they are from the present state.
	Earlier string `json:"earlier_decision,omitempty"`

	Reasons   []assign.Reason   `json:"reasons"`             // clamps, holds and fallbacks that shaped the shares
	Deviation *DeviationSeen    `json:"deviation,omitempty"` // nil while the source follows its shares
	Warnings  []string          `json:"warnings"`            // assumed latencies, capacity that is not declared, broken invariants
	Clients   []ClientExplained `json:"clients"`             // client services that send this demand

	Calls []CallSeen `json:"calls"` // services that call this one, as configured and as measured

	// DataPlanes shows what each kind of client, with its defaults, does with the served assignment.
	DataPlanes dataplane.Predictions `json:"data_planes"`
}

// DemandExplained is the demand of the source and how it came to be.
type DemandExplained struct {
	Rate        float64 `json:"rate"`        // demand for which the plan was made: smoothed, held, capped
	Raw         float64 `json:"raw"`         // demand of the last windows, unsmoothed
	Variability float64 `json:"variability"` // standard deviation within report intervals for which the shares were made, as a fraction; 0 = none is certain
	Saved       float64 `json:"saved"`       // saved before a restart; 0 if not in use
	Dropped     float64 `json:"dropped"`     // dropped by the clients
	Errors      float64 `json:"errors"`      // failed
	OffPlan     float64 `json:"off_plan"`    // requests beyond the plan: they count as unmanaged load, not as demand that the plan distributes
	Nodes       int     `json:"nodes"`       // streams with a fresh report
	Held        int     `json:"held"`        // streams whose last rate is held because a report is missing
	Service     float64 `json:"service"`     // demand of the whole service, all sources
	Measured    bool    `json:"measured"`    // false: no client has reported from this locality
	WindowMS    float64 `json:"window_ms"`   // age of the oldest part of raw when the plan was made

	ReportAge float64 `json:"report_age_seconds,omitempty"` // age of the newest load report from here when the plan was made; 0 = none is known
}

// LocalityExplained is one locality of the service as seen from the source.
type LocalityExplained struct {
	Locality isobar.Locality `json:"locality"`
	Tier     int             `json:"tier"` // priority in which the clients have it; -1 = none

	Distance float64 `json:"distance_ms"` // network latency plus egress price
	Assumed  bool    `json:"assumed,omitempty"`
	Price    float64 `json:"price_ms"`           // cost of one more request/s here for all requests together
	Calls    float64 `json:"calls_ms,omitempty"` // part of the price: the calls that a request served here causes, directly and indirectly
	Cost     float64 `json:"cost_ms"`            // distance + price: the solver sends to the lowest

	Endpoints int `json:"endpoints"`
	Healthy   int `json:"healthy"`  // usable by every kind of client
	Draining  int `json:"draining"` // taken out of traffic by an operator, the configuration or a provider: no failure

	CapacityNominal float64 `json:"capacity_nominal"` // capacity if every endpoint were healthy
	Capacity        float64 `json:"capacity"`         // capacity of the healthy endpoints
	Ceiling         float64 `json:"ceiling"`          // highest planned utilization
	Limit           float64 `json:"limit"`            // planned requests/s that fit below the ceiling
	UnmanagedLoad   float64 `json:"unmanaged_load"`
	Load            float64 `json:"load"`        // planned requests/s of all sources, without unmanaged load
	Utilization     float64 `json:"utilization"` // (load + unmanaged load) / capacity
	Measured        float64 `json:"measured"`    // requests/s that landed here from all sources
	ORCA            float64 `json:"orca"`        // utilization that the endpoints report; 0 = none

	Learned *LearnedExplained `json:"learned,omitempty"` // nil if no utilization was ever reported

	Observed string `json:"observed,omitempty"` // capacity estimated from its requests, in one sentence; empty if nothing was observed

	Counts string           `json:"counts"`           // the strictest limit: the metric of a limit, or a Counts constant
	Limits []LimitExplained `json:"limits,omitempty"` // in the order of the configuration

	Target        float64 `json:"target_share"`            // target of the solver, or of another policy, for this source
	Optimum       float64 `json:"optimum_share,omitempty"` // target of the solver, if another policy decides
	Published     float64 `json:"published_share"`         // published share
	ObservedShare float64 `json:"observed_share"`          // share that the clients reported
	Latency       float64 `json:"latency_ms"`              // mean, by Little's law over long windows; 0 = not known

	Preferred bool    `json:"preferred,omitempty"` // filled before other localities
	Egress    float64 `json:"egress_ms,omitempty"` // egress price, as a part of the distance
	Forbidden bool    `json:"forbidden,omitempty"` // isolation or residency always exclude the source
	Keeps     float64 `json:"keeps,omitempty"`     // part of its traffic that it keeps, with fewer healthy endpoints than the failover threshold; 0 = all
	Reserve   bool    `json:"reserve,omitempty"`   // isolation excludes the source while nearer regions have healthy capacity

	Barred      bool `json:"barred,omitempty"`      // the source did not reach it: it sends only a probe
	Unreachable bool `json:"unreachable,omitempty"` // no source reaches it: capacity 0
	// Outage says, with evidence, that requests from all sources fail there, or failed until a
	// moment ago; empty if they do not.
	Outage  string `json:"outage,omitempty"`
	Drained bool   `json:"drained,omitempty"` // too few endpoints are healthy: not used
	Full    bool   `json:"full,omitempty"`    // at its ceiling
}

// BindingExplained names the constraint that keeps the source from its nearest locality.
type BindingExplained struct {
	Kind     string           `json:"kind"`               // one of the Binding constants
	Locality *isobar.Locality `json:"locality,omitempty"` // locality that has the ceiling or the health
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
	Worse    float64         `json:"worse_ms"` // difference of its cost from the lowest cost in use
}

// ClientExplained is a client service and the part of the demand it sends.
type ClientExplained struct {
	Client string  `json:"client"` // node.cluster
	Rate   float64 `json:"rate"`
}
