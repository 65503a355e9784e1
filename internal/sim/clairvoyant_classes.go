package sim

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/solver"
)

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
	s.useByClass(sol.Services[0].Flows, drops)
	return nil
}

// classRates is what each class of clients sends, requests/s.
func (s *service) classRates() (rates isobar.ClassFractions, sum float64) {
	for _, g := range s.groups {
		for _, p := range g.populations {
			rates[p.class] += p.rate
			sum += p.rate
		}
	}
	return rates, sum
}

// mayShed is the most of its demand that the service may drop, as far as the
// classes of its clients allow.
func (s *service) mayShed() float64 {
	rates, sum := s.classRates()
	if s.spec.Criticality == nil || sum <= 0 {
		return s.spec.MaxShed
	}
	may := 0.0
	for c, rate := range rates {
		may += rate * s.spec.Criticality.MaxShed[c]
	}
	return min(s.spec.MaxShed, may/sum)
}

// classShed divides what is dropped, by group: those that matter least first.
func (s *service) classShed(shed []float64) (drops isobar.ClassFractions) {
	rates, _ := s.classRates()
	left := 0.0
	for _, x := range shed {
		left += x
	}
	for c := isobar.Classes - 1; c >= 0; c-- {
		if rates[c] > 0 {
			drops[c] = max(0, min(s.spec.Criticality.MaxShed[c], left/rates[c]))
			left -= drops[c] * rates[c]
		}
	}
	return drops
}

// useByClass lets clients follow the flows of their group with what they do not
// drop.
func (s *service) useByClass(flows [][]float64, drops isobar.ClassFractions) {
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
