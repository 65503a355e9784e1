package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

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
	of, r, from := s.reopen(p.Topology.Network, source)
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
func (s *Service) reopen(network *isobar.Network, source isobar.Locality) (of *Service, r *routes, from sources) {
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

// declaredCapacity returns the declared capacity of the healthy endpoints of a site,
// requests/s; 0 when its capacity is not declared.
func (s *Service) declaredCapacity(i int) float64 {
	sl := &s.Spec.Localities[i]
	rates, declared := endpointRates(sl)
	if !declared {
		return 0
	}
	sum := 0.0
	for j := range rates {
		if s.Sites[i].Group.Endpoints[j].Health.Usable() {
			sum += rates[j]
		}
	}
	return sum * orDefault(sl.CapacityScaler, 1)
}
