package plan

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

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
		Spec: s.Spec, Rollout: s.Rollout, Findings: s.Findings, Problem: s.Problem, Solution: s.Solution, Inputs: s.Inputs, Hold: s.Hold,
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

// Moved tells how many requests/s of a service, or of all for an empty name, go
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
// somebody takes it back. It gives nil when the plan drops nothing.
func (p *Plan) WithoutDrops(now time.Time, version uint64) *Plan {
	var out *Plan
	for i, s := range p.Services {
		if s.Result == nil || s.Result.Drop <= 0 {
			continue
		}
		if out == nil {
			copied := *p
			copied.Version, copied.Made, copied.Trigger, copied.Violations = version, now, assign.Rebase, nil
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
	out.Version, out.Made, out.Trigger, out.Violations, out.Final = version, now, assign.Rebase, nil, true
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
