// Package assign turns what the solver wants into what clients get: shares in
// 1/10,000, failover tiers and drops, paced from plan to plan, each with its
// reasons; and it checks the result independently of how it was made.
package assign

import (
	"github.com/isobar-xds/isobar"
)

// Site is one locality of a service as the assignment sees it. Sites are in
// the order of Service.Localities (sorted by locality).
type Site struct {
	Group     *isobar.EndpointGroup // endpoints with effective health and the weights to send
	Nominal   float64               // capacity if every endpoint were healthy, requests/s
	Capacity  float64               // effective capacity: healthy share x scaler x declared, requests/s
	Ceiling   float64               // utilization not to exceed, (0, 1]
	Scale     float64               // overflow factor of the ceiling from the solver, >= 1
	Unmanaged float64               // load that lands there whatever the shares are, requests/s
	Preferred bool                  // filled before sites that are not
	// Unreachable says that every source with a stake agrees it cannot reach
	// this site: Capacity is 0 for that reason and not for health.
	Unreachable bool
	// Drained says that too few of its endpoints are healthy for it to be used:
	// Capacity is 0 for that reason.
	Drained bool
}

// Limit is the rate that obeys which the site may carry, requests/s.
func (s *Site) Limit() float64 {
	return max(0, s.Ceiling*max(1, s.Scale)*s.Capacity-s.Unmanaged)
}

// Usable reports whether any endpoint takes traffic.
func (s *Site) Usable() bool { return s.Group.Usable() > 0 }

// Source is one source locality of a service and what the solver wants of it.
type Source struct {
	Locality isobar.Locality
	Demand   float64   // steerable requests/s (unmanaged load taken off); 0 = subscribed, but sends nothing
	Distance []float64 // per site: latency + price, ms
	Target   []float64 // per site: the shares that the solver or the policy wants, summing to 1; nil: none is known
	Mix      Mix       // of its clients' classes; read only where the service has classes
	Barred   []bool    // per site: the source was seen not to reach it; nil = none
	// Most is, per site, the largest share that the source may get of it, because it
	// fails more than before or works again only since a moment; nil = no bound. It
	// counts in mode full, for sources that have an answer.
	Most []float64
	// Back tells, per site, that it works again: what comes back to it is not bound
	// by the step of a tick; nil = none.
	Back []bool
	// Chosen tells, per site, that clients of the source send more there than planned. They may
	// choose among the localities of priority 0 by themselves: then the requests of a site that
	// leaves it go to those that are left; nil = none.
	Chosen []bool
	// Forbidden tells, per site, that clients of the source must never send
	// there, not even when nothing else is left; nil = none.
	Forbidden []bool
	// Reserve tells, per site, that it is for failover only: nothing more is put
	// there in priority 0, and what is there leaves it at the usual pace; nil =
	// none. It says nothing where all that is fit is reserve.
	Reserve []bool
}

// Trigger says why a plan is made.
type Trigger uint8

// The triggers.
const (
	// Tick is a regular decision: one step of pacing.
	Tick Trigger = iota
	// Reapply carries the current weights over to a changed topology or health,
	// without a new decision: no step of pacing is taken.
	Reapply
)

// Input is one service to assign.
type Input struct {
	Service  *isobar.Service
	Sites    []Site
	Sources  []Source  // sorted by locality
	Prices   []float64 // per site, ms; nil without a solution
	Shed     float64   // fraction of the demand that the solver sheds, 0 to MaxShed
	Previous *Result   // what is published; nil for a new service
	Trigger  Trigger
	// Hold, when not empty, says why weights must not move now (for example
	// "coverage 40%"): only topology and health changes are published.
	Hold string
	// Pace is the part of the usual step that is allowed, above 0 to 1; 0 = all of
	// it. What relieves a full locality is not slowed down.
	Pace float64
	Slow string // why Pace is below 1; empty when it is not
	// Gain is the part of its way that a share may go in a tick, above 0 to 1; 0 =
	// all of it. It damps oscillations, and does not slow down moves that relieve a full
	// locality either.
	Gain float64
	Damp string // why Gain is below 1; empty when it is not
	// Settle lets moves be published that are smaller than what usually counts.
	Settle bool
	// Refused, when not empty, says why the check refused what was decided: then
	// what was published goes on, as on a reapplication.
	Refused string
}

// Result is a service as assigned. Immutable; Next results share what did not
// change.
type Result struct {
	Service string
	Sites   []Site
	Sources []SourceResult // sorted by locality
	Drop    float64        // fraction of the demand that is dropped at the clients
	// Classes is what they drop by class; nil where they all drop the same.
	Classes *isobar.ClassDrops
	// Load is what the published shares send to each site at the demand they
	// were made for, after drops, requests/s.
	Load []float64

	Mode     isobar.Mode
	Policy   isobar.Policy
	MaxShift float64 // percentage points; of mode bounded
	Settings isobar.AssignmentSettings
	// Groups holds, per site, the endpoints as clients get them. They differ
	// from those of Sites only while the service fails open.
	Groups []*isobar.EndpointGroup
	// Over counts, per site, the ticks for which moves too small to publish
	// left the site above its limit.
	Over []int
}

// Source finds a source's result; nil when it is not part of the result.
func (r *Result) Source(l isobar.Locality) *SourceResult {
	if r == nil {
		return nil
	}
	for i := range r.Sources {
		if r.Sources[i].Source == l {
			return &r.Sources[i]
		}
	}
	return nil
}

// SourceResult is what one source gets, and the state that pacing needs.
type SourceResult struct {
	Source     isobar.Locality
	Demand     float64
	Mix        Mix                // of its clients' classes
	Target     []float64          // per site: the shares that the solver or the policy wants; nil: none
	Want       []float64          // per site: where the shares are heading: the target after mode, thresholds and ceilings
	Shares     []float64          // per site: published shares of priority 0, multiples of 1/10,000
	Below      []int              // per site: ticks for which the wanted share was below the exit threshold
	Assignment *isobar.Assignment // the same pointer as before when nothing in it changed
	Reasons    []Reason
}

// Reason explains one thing about a source's shares.
type Reason struct {
	Code     ReasonCode      `json:"code"`
	Locality isobar.Locality `json:"locality,omitzero"`
	Text     string          `json:"text"`
}

// ReasonCode is the kind of a reason.
type ReasonCode string

// The kinds of reasons.
const (
	ReasonBaseline    ReasonCode = "baseline"    // mode observe, or no demand: nearest healthy
	ReasonNoDemand    ReasonCode = "no-demand"   // answered from prices and headroom
	ReasonBounded     ReasonCode = "bounded"     // mode bounded: clamped at max_shift
	ReasonPaced       ReasonCode = "paced"       // clamped at the step of this tick
	ReasonDamped      ReasonCode = "damped"      // shares oscillated: they move by a fraction of the way only
	ReasonSuppressed  ReasonCode = "suppressed"  // the change was too small to publish
	ReasonEntry       ReasonCode = "entry"       // below the entry threshold, left out
	ReasonFull        ReasonCode = "full"        // enters below the entry threshold: the others have no headroom
	ReasonExit        ReasonCode = "exit"        // kept in until 3 ticks below the exit threshold
	ReasonHold        ReasonCode = "hold"        // weights held, see the text
	ReasonSlow        ReasonCode = "slow"        // a smaller step than usual, see the text
	ReasonUnhealthy   ReasonCode = "unhealthy"   // share moved off unhealthy capacity
	ReasonFailOpen    ReasonCode = "fail-open"   // nothing is healthy: all are used
	ReasonBarred      ReasonCode = "barred"      // observed unreachable from here: a probe only
	ReasonHeld        ReasonCode = "held-back"   // the share does not rise further now: requests fail there, or did until a moment ago
	ReasonForbidden   ReasonCode = "forbidden"   // isolation or residency keep the source from other localities
	ReasonOverflow    ReasonCode = "overflow"    // ceilings raised evenly: it does not fit
	ReasonShed        ReasonCode = "shed"        // a part is dropped
	ReasonVariability ReasonCode = "variability" // demand varies faster than Isobar can follow, see the text
	ReasonFallback    ReasonCode = "fallback"    // the check refused the plan; the previous one, reapplied
)
