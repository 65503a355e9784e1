package sim

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/solver"
)

// clairvoyant solves before every step with what is true in it: demand,
// capacity, failures. Its flows are in force at once, neither paced nor rounded.
type clairvoyant struct {
	idle

	w      *world
	solved []solver.Service // what was solved last, per service
	warm   [][]float64
}

func newClairvoyant(w *world) (balancer, error) {
	return &clairvoyant{w: w, solved: make([]solver.Service, len(w.services)), warm: make([][]float64, len(w.services))}, nil
}

func (b *clairvoyant) step(time.Duration) error {
	b.w.demand()
	if slices.ContainsFunc(b.w.services, func(s *service) bool { return len(s.calls) > 0 }) {
		return b.stepJoint()
	}
	for i, s := range b.w.services {
		demand := make([]float64, len(s.groups))
		for j, g := range s.groups {
			demand[j] = g.rate
		}
		p := s.problem(demand, s.trueSites()).Service
		p.Price = s.troublePrices(b.w.timeout())
		if s.spec.Criticality != nil {
			if err := b.stepClasses(s, p); err != nil {
				return err
			}
			continue
		}
		if slices.Equal(p.Demand, b.solved[i].Demand) && slices.Equal(p.Localities, b.solved[i].Localities) &&
			slices.EqualFunc(p.Price, b.solved[i].Price, slices.Equal[[]float64]) {
			continue
		}
		b.solved[i] = p
		p.WarmPrices = b.warm[i]
		sol, err := solver.Solve(solver.Problem{Services: []solver.Service{p}})
		if err != nil {
			return err
		}
		b.warm[i] = sol.Services[0].Prices
		for j, g := range s.groups {
			g.useAll(s.exactly(sol.Services[0].Flows[j], sol.Services[0].Shed[j]))
		}
	}
	return nil
}

// stepClasses solves a service of which some clients matter less: first how much
// has to be dropped of all requests, then where the rest goes when these clients
// have dropped it.
func (b *clairvoyant) stepClasses(s *service, p solver.Service) error {
	p.MaxShed, p.WarmPrices = s.mayShed(), b.warm[s.index]
	sol, err := solver.Solve(solver.Problem{Services: []solver.Service{p}})
	if err != nil {
		return err
	}
	drops := s.classShed(sol.Services[0].Shed)
	if drops != (isobar.ClassFractions{}) {
		p.MaxShed, p.WarmPrices = 0, sol.Services[0].Prices
		for j, g := range s.groups {
			p.Demand[j] = 0
			for _, x := range g.populations {
				p.Demand[j] += x.rate * (1 - drops[x.class])
			}
		}
		if sol, err = solver.Solve(solver.Problem{Services: []solver.Service{p}}); err != nil {
			return err
		}
	}
	b.warm[s.index] = sol.Services[0].Prices
	useByClass(s, sol.Services[0].Flows, drops)
	return nil
}

// useByClass lets clients follow the flows of their group with what they do not
// drop.
func useByClass(s *service, flows [][]float64, drops isobar.ClassFractions) {
	for j, g := range s.groups {
		var routes [isobar.Classes]*route
		for _, c := range g.clients {
			class := c.population.class
			if routes[class] == nil {
				routes[class] = s.exactly(flows[j], 0)
				routes[class].drop(drops[class])
			}
			c.use(routes[class])
		}
	}
}

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
