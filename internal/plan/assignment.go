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

// Spec gives the configuration of a service; nil when it is not in the plan.
func (p *Plan) Spec(name string) *isobar.Service {
	s, ok := p.Service(name)
	if !ok {
		return nil
	}
	return s.Spec
}

// RequestLimit gives how many requests each client of a service may have in progress;
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

// Assignment gives what clients of a service in a source locality get; nil
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
	d := s.draft(p.Topology.Network, source)
	if policyOf(s.Spec) != nil || s.decays() {
		for i := range s.Result.Sources { // a policy looks at all of them together
			r := &s.Result.Sources[i]
			d.sources = append(d.sources, sourceDemand{source: r.Source, demand: r.Demand, barred: d.barredFrom(r.Source)})
		}
		d.applyPolicy()
	}
	return assign.ForNewSource(s.Result, s.Prices, d.assignSource(&d.sources[0]))
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

// draft makes a draft of a planned service again, for one source.
func (s *Service) draft(network *isobar.Network, source isobar.Locality) *draft {
	d := &draft{network: network, sites: make([]site, len(s.Sites)), sources: []sourceDemand{{source: source}}}
	d.Spec, d.Findings, d.Problem, d.Solution = s.Spec, s.Findings, s.Problem, s.Solution
	d.Inputs, d.Hold = s.Inputs, s.Hold
	for i := range s.Sites {
		d.sites[i].Site = s.Sites[i]
	}
	d.sources[0].barred = d.barredFrom(source)
	return d
}

// declaredCapacity gives the declared capacity of the healthy endpoints of a site,
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
