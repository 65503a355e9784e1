package solver

import (
	"fmt"
	"math"
	"slices"
)

// Objective is the cost of flows x [s][l] in requests/s * ms:
//
//	sum_sl x_sl (w_sl + price_sl)  +  sum_l y_l t_l + Q_l(y_l + b_l),  y_l = sum_s x_sl
//
// If demand varies, a locality costs the mean of what y+D and y-D cost, with
// the standard deviation D_l = sqrt(sum_s (variability_s x_sl)^2). Divided by the demand
// the objective is the mean latency in ms where there is neither unmanaged load nor
// price. Localities of capacity 0 count only the way to them.
func Objective(s Service, flows [][]float64) float64 {
	total := 0.0
	for l := range s.Localities {
		y, square := 0.0, 0.0
		for i := range flows {
			x := flows[i][l]
			y += x
			total += x * s.cost(i, l)
			if i < len(s.Variability) {
				square += s.Variability[i] * x * s.Variability[i] * x
			}
		}
		if s.Localities[l].Capacity > 0 {
			c := newCurve(s.Localities[l])
			total += c.meanValue(y, math.Sqrt(square))
		}
	}
	return total
}

// cost is w + price.
func (s *Service) cost(source, locality int) float64 {
	c := s.Latency[source][locality]
	if s.Price != nil {
		c += s.Price[source][locality]
	}
	return c
}

// open reports whether a source may send to a locality.
func (s *Service) open(source, locality int) bool {
	return s.Localities[locality].Capacity > 0 && (s.Allowed == nil || s.Allowed[source][locality])
}

// Resolve is service i with the demand that its callers cause filled in, as the
// solutions of all services have it: [Check] and [Objective] hold for it.
func (p Problem) Resolve(i int, solved []ServiceSolution) Service {
	s := p.Services[i]
	s.Demand = append([]float64(nil), s.Demand...)
	for j := range p.Services {
		for _, c := range p.Services[j].Calls {
			if c.Service == i {
				for _, y := range solved[j].Load {
					s.Demand = append(s.Demand, c.PerRequest*y)
				}
			}
		}
	}
	return s
}

// CheckAll is [Check] for every service of a problem, with what their callers
// demand. With [TotalBound] it verifies a solution.
func CheckAll(p Problem, sol Solution) error {
	if len(sol.Services) != len(p.Services) {
		return fmt.Errorf("the solution has %d services for %d", len(sol.Services), len(p.Services))
	}
	for i := range p.Services {
		if err := Check(p.Resolve(i, sol.Services), sol.Services[i]); err != nil {
			return fmt.Errorf("services[%d]: %w", i, err)
		}
	}
	return nil
}

// TotalBound is a number that no flows of the problem can cost less than,
// whatever the prices of the solutions are; good prices make it tight. It is the
// certificate of a solution, and needs no trust in the method that found it: a
// request in a locality costs its price there and what its calls cost from there
// on, and what a call costs is its cheapest way, found leaves first:
//
//	sum over demand from outside of d_s min_l (w_sl + price_sl + p_l + sum over calls of per_request v_callee,l)
//	  -  sum over all localities of max over feasible y of (p_l y - y t_l - Q_l(y + b_l))
//	v_l = min_m (w_lm + price_lm + p_m + ...)
//
// Of the solutions it reads Prices, Scale, Shed and CallsServed: ceilings are
// raised, and demand and calls given up, as they say. Demand without an allowed
// locality doesn't count. With Variability it also counts that demand varies. The
// error wraps ErrInvalid if the problem is, and reports slices that do not fit the problem.
func TotalBound(p Problem, services []ServiceSolution) (float64, error) {
	g, err := p.checked()
	if err != nil {
		return 0, err
	}
	if len(services) != len(p.Services) {
		return 0, fmt.Errorf("the solution has %d services for %d", len(services), len(p.Services))
	}
	prices := make([][]float64, len(services))
	for i := range services {
		s, sol := &p.Services[i], &services[i]
		if l := len(s.Localities); len(sol.Prices) != l || len(sol.Scale) != l || len(sol.Shed) != p.Sources(i) {
			return 0, fmt.Errorf("services[%d]: the solution's slices do not fit %d sources and %d localities", i, p.Sources(i), l)
		}
		prices[i] = sol.Prices
	}
	return p.boundOf(g, g.order, prices, services), nil
}

// boundOf is the bound of some services, callers first, at these prices.
func (p Problem) boundOf(g *callGraph, group []int, prices [][]float64, solved []ServiceSolution) float64 {
	worth := make([][]float64, len(p.Services)) // what a request of a source costs at least
	total := 0.0
	for _, i := range slices.Backward(group) {
		s := &p.Services[i]
		if solved[i].certifiesVariable(s) {
			total += newInstance(s).variabilityBound(prices[i], solved[i].Variability)
			continue
		}
		below := p.below(g, i, worth, solved)
		worth[i] = cheapest(s, prices[i], below)
		for j, d := range s.Demand {
			if d -= solved[i].Shed[j]; d > 0 && !math.IsInf(worth[i][j], 1) {
				total += d * worth[i][j]
			}
		}
		for l, loc := range s.Localities {
			if loc.Capacity > 0 {
				c := newCurve(loc)
				total -= c.gain(prices[i][l], c.headroom(solved[i].Scale[l]))
			}
		}
	}
	return total
}

// certifiesVariable reports whether prices of variable demand prove a bound: all demand is
// served beneath the ceilings, as [instance.variabilityBound] takes for granted.
func (sol *ServiceSolution) certifiesVariable(s *Service) bool {
	if s.Variability == nil || !sol.Variability.shaped(len(s.Demand), len(s.Localities)) {
		return false
	}
	for l, high := range sol.Variability.High {
		if high < sol.Variability.Low[l] || sol.Scale[l] > 1 {
			return false
		}
	}
	return !slices.ContainsFunc(sol.Shed, func(shed float64) bool { return shed > 0 })
}

// cheapest is, for every source, the least of way, price and what follows below.
func cheapest(s *Service, prices, below []float64) []float64 {
	worth := make([]float64, len(s.Latency))
	for r := range worth {
		worth[r] = math.Inf(1)
		for l := range s.Localities {
			if s.open(r, l) {
				worth[r] = math.Min(worth[r], s.cost(r, l)+prices[l]+below[l])
			}
		}
	}
	return worth
}

// below is what the calls of a request to service i cost, per locality where it
// is served, once what its callees' sources pay is known.
func (p Problem) below(g *callGraph, i int, worth [][]float64, solved []ServiceSolution) []float64 {
	s := &p.Services[i]
	below := make([]float64, len(s.Localities))
	for k, c := range s.Calls {
		rate := c.PerRequest
		if i < len(solved) && k < len(solved[i].CallsServed) {
			rate *= solved[i].CallsServed[k]
		}
		if rate == 0 {
			continue
		}
		for _, e := range g.in[c.Service] {
			if e.from != i {
				continue
			}
			for l := range below {
				if v := worth[c.Service][e.first+l]; !math.IsInf(v, 1) {
					below[l] += rate * v
				}
			}
		}
	}
	return below
}

// certifyGroup chooses the prices of a group's services and returns the bound
// that they prove: with the slopes at the final loads wherever the ceiling does
// not bind, or with the method's prices if those prove more.
func (p Problem) certifyGroup(g *callGraph, group []int, members []*member, with []float64, out []ServiceSolution) float64 {
	prices, costs := make([][]float64, len(p.Services)), make([][]float64, len(p.Services))
	best := math.Inf(-1)
	for _, slopes := range []bool{true, false} {
		worth := make([][]float64, len(p.Services))
		for _, m := range slices.Backward(members) {
			below := p.below(g, m.index, worth, out)
			prices[m.index], costs[m.index] = m.prices(with, below, &out[m.index], slopes), below
			worth[m.index] = cheapest(m.service, prices[m.index], below)
		}
		if bound := p.boundOf(g, group, prices, out); bound > best || math.IsInf(best, -1) {
			best = bound
			for _, m := range members {
				out[m.index].Prices = prices[m.index]
				if len(m.service.Calls) > 0 {
					out[m.index].CallCosts = costs[m.index]
				}
			}
		}
	}
	return best
}

// prices are a member's own, without the prices of the following hops, or the slopes of its
// curves where there is headroom left. Where nothing can land, they are prohibitive.
func (m *member) prices(with, below []float64, sol *ServiceSolution, slopes bool) []float64 {
	own := make([]float64, len(m.of))
	for l, c := range m.of {
		curve := &m.agg.curves[l]
		switch {
		case c < 0:
			own[l] = curve.slope(0)
		case slopes && sol.Load[l] < (1-1e-5)*m.headrooms[l]:
			own[l] = curve.slope(sol.Load[l])
		default:
			own[l] = with[c] - below[l]
		}
	}
	worth := m.paid(own, below)
	for l := range m.of {
		if m.headrooms[l] > 0 {
			continue
		}
		for r, v := range worth {
			if !math.IsInf(v, 1) && (m.service.Allowed == nil || m.service.Allowed[r][l]) {
				own[l] = math.Max(own[l], v-m.service.cost(r, l)-below[l])
			}
		}
	}
	return own
}

// paid is what a request of each source costs over the localities where
// something can land.
func (m *member) paid(own, below []float64) []float64 {
	worth := make([]float64, len(m.service.Latency))
	for r := range worth {
		worth[r] = math.Inf(1)
		for l, c := range m.of {
			if c >= 0 && m.service.open(r, l) {
				worth[r] = math.Min(worth[r], m.service.cost(r, l)+own[l]+below[l])
			}
		}
	}
	return worth
}
