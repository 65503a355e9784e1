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
	// Final says that all replicas of the group end: clients get the plan without its
	// drops, and who leads next goes on with them.
	Final bool

	// Totals over the services that were solved in this plan.
	Objective, LowerBound, Gap, ExcessMS float64
	PlanGap                              float64 // the same for the paced and rounded assignment
	Violations                           []invariant.Violation
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

// ServiceNames lists the services, sorted.
func (p *Plan) ServiceNames() []string {
	out := make([]string, len(p.Services))
	for i, s := range p.Services {
		out[i] = s.Spec.Name
	}
	return out
}

// Spec returns the configuration of a service; nil when it is not in the plan.
func (p *Plan) Spec(name string) *isobar.Service {
	s, ok := p.Service(name)
	if !ok {
		return nil
	}
	return s.Spec
}

// RequestLimit returns how many requests each client of a service may have in progress;
// 0 = no limit.
func (p *Plan) RequestLimit(name string) uint32 {
	s, ok := p.Service(name)
	if !ok {
		return 0
	}
	return s.RequestLimit.Max
}

// Awaited lists the services of which no endpoints are known yet, sorted.
func (p *Plan) Awaited() []isobar.Service { return p.Topology.Awaited }

// named returns a service, or all for an empty name.
func (p *Plan) named(service string) []*Service {
	if service == "" {
		return p.Services
	}
	if s, ok := p.Service(service); ok {
		return []*Service{s}
	}
	return nil
}
