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
