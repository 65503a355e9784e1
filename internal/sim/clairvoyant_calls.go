package sim

import (
	"slices"

	"github.com/isobar-xds/isobar/solver"
)

// stepJoint solves all services as one problem, because some call others: where
// a request is served decides from where it calls.
func (b *clairvoyant) stepJoint() error {
	var p solver.Problem
	same := true
	for i, s := range b.w.services {
		x := b.joint(s)
		x.MaxShed = s.mayShed()
		x.WarmPrices = b.warm[i]
		p.Services = append(p.Services, x)
		same = same && slices.Equal(x.Demand, b.solved[i].Demand) && slices.Equal(x.Localities, b.solved[i].Localities)
	}
	if same {
		return nil
	}
	sol, err := solver.Solve(p)
	if err != nil {
		return err
	}
	for i, s := range b.w.services {
		b.solved[i], b.warm[i] = p.Services[i], sol.Services[i].Prices
		flows, shed := b.perGroup(s, &sol.Services[i])
		if s.spec.Criticality != nil {
			useByClass(s, flows, s.classShed(shed))
			continue
		}
		for j, g := range s.groups {
			g.useAll(s.exactly(flows[j], shed[j]))
		}
	}
	return nil
}

// joint states a service with the calls that it makes and gets. Its own sources
// come first, then the localities of each service that calls it.
func (b *clairvoyant) joint(s *service) solver.Service {
	demand := make([]float64, len(s.groups))
	for j, g := range s.groups {
		for _, p := range g.populations {
			if p.source != nil {
				demand[j] += p.rate
			}
		}
	}
	p := s.problem(demand, s.trueSites()).Service
	for _, c := range s.calls {
		p.Calls = append(p.Calls, solver.Call{Service: c.to.index, PerRequest: c.perRequest})
	}
	b.callers(s, func(g *group) { p.Latency = append(p.Latency, g.latency) })
	return p
}

// callers lists the groups of a service that stand for the localities of its
// callers, in the order of the problem's sources.
func (b *clairvoyant) callers(s *service, each func(*group)) {
	for _, from := range b.w.services {
		for _, c := range from.calls {
			if c.to != s {
				continue
			}
			for _, p := range c.callers {
				each(p.group)
			}
		}
	}
}

// perGroup adds up what a solution lets the clients of each group do, whether
// they send on their own account or because they were called.
func (b *clairvoyant) perGroup(s *service, sol *solver.ServiceSolution) (flows [][]float64, shed []float64) {
	flows, shed = make([][]float64, len(s.groups)), make([]float64, len(s.groups))
	for j := range flows {
		flows[j] = slices.Clone(sol.Flows[j])
		shed[j] = sol.Shed[j]
	}
	row := len(s.groups)
	b.callers(s, func(g *group) {
		j := slices.Index(s.groups, g)
		for l, x := range sol.Flows[row] {
			flows[j][l] += x
		}
		shed[j] += sol.Shed[row]
		row++
	})
	return flows, shed
}
