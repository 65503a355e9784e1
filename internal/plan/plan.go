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

// Assignment returns what clients of a service in a source locality get; nil
// when the service is not in the plan. A source that the plan does not know is
// answered from prices and headroom, as the next plan would.
func (p *Plan) Assignment(service string, source isobar.Locality) *isobar.Assignment {
	s, ok := p.Service(service)
	if !ok {
		return nil
	}
	if r := s.Result.Source(source); r != nil {
		return r.Assignment
	}
	of, r, from := reopen(s, p.Topology.Network, source)
	var t targets
	if policyOf(s.Spec) != nil || s.decays() {
		for i := range s.Result.Sources { // a policy looks at all of them together
			known := &s.Result.Sources[i]
			from = append(from, sourceDemand{source: known.Source, demand: known.Demand, barred: barredFrom(of, r.sites, known.Source)})
		}
		t, _ = targetsOf(of, r, from, nil)
	}
	return assign.ForNewSource(s.Result, s.Prices, sourceOf(of, r, &from[0], &t, nil))
}

// reopen returns what an answer for one more source of a planned service follows from.
func reopen(s *Service, network *isobar.Network, source isobar.Locality) (of *Service, r *routes, from sources) {
	of = &Service{
		Spec: s.Spec, Rollout: s.Rollout, Deviations: s.Deviations, Problem: s.Problem, Solution: s.Solution, Inputs: s.Inputs, Hold: s.Hold,
	}
	r = &routes{spec: s.Spec, network: network, sites: make(sites, len(s.Sites))}
	for i := range s.Sites {
		r.sites[i].Site = s.Sites[i]
	}
	return of, r, sources{{source: source, barred: barredFrom(of, r.sites, source)}}
}

// basis is what the assignments of a service follow from: both are immutable.
type basis struct {
	service *Service
	network *isobar.Network
}

// Basis is equal in two plans that give all clients of a service the same,
// because nothing was decided about it in between; nil when the service is not
// in the plan. It is comparable.
func (p *Plan) Basis(service string) any {
	s, ok := p.Service(service)
	if !ok {
		return nil
	}
	return basis{s, p.Topology.Network}
}

// Moved returns how many requests/s of a service, or of all for an empty name, go
// elsewhere than in the plan before.
func (p *Plan) Moved(before *Plan, service string) float64 {
	moved := 0.0
	for _, s := range p.named(service) {
		was, ok := before.Service(s.Spec.Name)
		if !ok || was == s {
			continue
		}
		for i := range s.Result.Sources {
			r := &s.Result.Sources[i]
			if was.Result.Source(r.Source) == nil {
				continue
			}
			part := 0.0
			for _, l := range union([3]*Service{was, s}, (*Service).localities) {
				part += max(0, s.share(r.Source, l)-was.share(r.Source, l))
			}
			moved += r.Demand * part
		}
	}
	return moved
}

// WithoutDrops returns the plan to leave clients with when nobody will watch over
// them: the same weights, but nothing is dropped. A drop holds only as long as
// an operator ends it. It returns nil when the plan drops nothing.
func (p *Plan) WithoutDrops(now time.Time, version uint64) *Plan {
	var out *Plan
	for i, s := range p.Services {
		if s.Result == nil || s.Result.Drop <= 0 {
			continue
		}
		if out == nil {
			copied := *p
			copied.Version, copied.Made, copied.Trigger, copied.Violations = version, now, assign.Reapply, nil
			copied.Services = append([]*Service(nil), p.Services...)
			out = &copied
		}
		service := *s
		service.Result = withoutDrop(s.Result)
		out.Services[i] = &service
	}
	return out
}

// Drops reports whether clients drop requests by the plan, which may be nil.
func (p *Plan) Drops() bool {
	return p != nil && slices.ContainsFunc(p.Services, func(s *Service) bool { return s.Result != nil && s.Result.Drop > 0 })
}

// FinalPlan returns the plan that the last leader of a group publishes: the same with a version of
// its own. Clients get it without its drops, see [Plan.WithoutDrops].
func (p *Plan) FinalPlan(now time.Time, version uint64) *Plan {
	out := *p
	out.Version, out.Made, out.Trigger, out.Violations, out.Final = version, now, assign.Reapply, nil, true
	return &out
}

func withoutDrop(r *assign.Result) *assign.Result {
	out := *r
	out.Drop = 0
	if r.Classes != nil {
		out.Classes = &isobar.ClassDrops{Criticality: r.Classes.Criticality}
	}
	out.Load = make([]float64, len(r.Load))
	for i := range r.Sources {
		for l, share := range r.Sources[i].Shares {
			out.Load[l] += share * r.Sources[i].Demand
		}
	}
	out.Sources = append([]assign.SourceResult(nil), r.Sources...)
	for i := range out.Sources {
		if a := out.Sources[i].Assignment; a != nil && (a.Drop > 0 || a.Classes != nil) {
			copied := *a
			copied.Drop, copied.Classes = 0, out.Classes
			out.Sources[i].Assignment = &copied
		}
	}
	return &out
}

// TroubleKind says what is wrong with a service.
type TroubleKind string

// The kinds of troubles that a plan knows of.
const (
	TroubleFailing      TroubleKind = "requests_failing"        // more than 1% of the requests of the service fail
	TroubleSource       TroubleKind = "source_failing"          // nothing of one source gets through
	TroubleSite         TroubleKind = "locality_failing"        // all requests to a locality fail
	TroubleSitePartly   TroubleKind = "locality_failing_partly" // many requests to a locality fail, though few of the whole service
	TroubleEndpoint     TroubleKind = "endpoint_failing"        // an endpoint fails far more than others of its locality
	TroubleUnreachable  TroubleKind = "locality_unreachable"    // no source reaches a locality
	TroubleReturning    TroubleKind = "locality_returning"      // a locality works again and gets its share back in parts
	TroubleContradicted TroubleKind = "capacity_contradicted"   // requests tell another capacity than the declared one
	TroubleLimit        TroubleKind = "limit_without_effect"    // a limit does not do what it is there for
)

// Trouble is one thing about a service that an operator should know of.
type Trouble struct {
	Kind     TroubleKind
	Locality isobar.Locality // of clients with TroubleSource, else of endpoints; zero = the whole service
	Text     string          // a sentence that does not name the service
}

// troubleTexts lists the sentences of troubles.
func troubleTexts(troubles []Trouble) []string {
	var out []string
	for i := range troubles {
		out = append(out, troubles[i].Text)
	}
	return out
}
