// Package plan is the pure heart: from topology, health, load and the plan
// before it makes the next plan. Same input, same plan, byte for byte.
package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/solver"
)

// Plan is one immutable version of everything decided.
type Plan struct {
	Version  uint64 // monotone, also across restarts; see VersionString
	Made     time.Time
	Trigger  assign.Trigger
	Topology *isobar.Topology
	Services []*Service // sorted by name
	Paused   Pauses
	// Provisional says that the group of replicas made plans before, and has lost all of
	// them: clients that have one of those must not get this one. See [Decider.Gather].
	Provisional bool

	// Totals over the services that were solved in this plan.
	Objective, LowerBound, Gap, ExcessMS float64
	PlanGap                              float64 // the same for the paced and rounded assignment
	Violations                           []invariant.Violation
}

// Service is one service of a plan: inputs, solution and assignment.
type Service struct {
	Spec     *isobar.Service
	Sites    []assign.Site
	Coverage float64
	Hold     string            // why weights are held; empty when they are not
	Paused   *Pause            // by an operator; nil when it is not
	Inputs   []InputState      // how fresh what it is decided from is, in the order of [Inputs]
	Load     *load.ServiceLoad // what was measured; nil when nothing was
	Findings load.Findings     // landings against plan
	Learned  []load.Capacity   // what reports of utilization tell about capacities, sorted by locality
	// Observed is what requests tell about capacities, sorted by locality.
	Observed []ObservedCapacity
	// Dimensions is what is known of the limits of the service, sorted by locality,
	// then in the order of Spec.Limits; Limited, per site, what they make of it. Both
	// are nil without limits.
	Dimensions []load.Dimension
	Limited    []LimitedSite
	Problem    *solver.Service // what was solved; nil without demand
	Solution   *solver.ServiceSolution
	Solved     []isobar.Locality // sources of Problem and Solution, in their order
	Prices     []float64         // per site, ms, of the last solution, calls included; nil when there was none
	// CallCosts is, per site, the part of Prices that is the cost of the calls of
	// a request served there; nil without calls, or when nothing was solved.
	CallCosts []float64
	Callers   []string // services whose calls make a part of its demand, computed from what they serve
	// Joint says that calls connect the service with others that were solved
	// together with it: PlanGap, and the gap of Solution, are those of all of them.
	Joint   bool
	Alone   bool // calls connect it with too much to solve together: what is measured counts
	PlanGap float64
	Calm    *Calm // nil while something happens
	// PolicyGap is what the policy costs, before it is paced and rounded, above
	// the bound, as a fraction of its cost; PolicyMS the same against the solution, in
	// milliseconds of mean latency. Both are 0 with policy latency, and where calls
	// connect the service with others.
	PolicyGap, PolicyMS float64
	Result              *assign.Result
	// Scores tells what was predicted against what was then seen; nil before
	// anything was.
	Scores  *Scores
	Damping *Damping // of limit cycles; nil before a decision
	// RequestLimit is how many requests each client may have in progress.
	RequestLimit RequestLimit
	Rollout      *Rollout // how far mode auto has come; nil with other modes
}

// MakeProvisional makes a plan that nobody has yet a provisional one.
func (p *Plan) MakeProvisional() {
	p.Provisional = true
	for _, s := range p.Services {
		awaitClients(s)
	}
}

// VersionString is the version as it goes over the wire.
func (p *Plan) VersionString() string { return strconv.FormatUint(p.Version, 10) }

// ParseVersion is the inverse of VersionString.
func ParseVersion(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v == 0 {
		return 0, fmt.Errorf("%w: %q is not a version", isobar.ErrInvalid, s)
	}
	return v, nil
}

// Service finds a service of the plan; no plan has none.
func (p *Plan) Service(name string) (*Service, bool) {
	if p == nil {
		return nil, false
	}
	i, ok := slices.BinarySearchFunc(p.Services, name, func(s *Service, n string) int { return strings.Compare(s.Spec.Name, n) })
	if !ok {
		return nil, false
	}
	return p.Services[i], true
}
