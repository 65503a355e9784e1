package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// certificate is what is proved of services that were solved together.
type certificate struct {
	objective, bound float64 // requests/s x ms
	demand           float64 // from outside, served, requests/s
	published        float64 // what the paced and rounded assignments cost
}

// publish adds up what the assignments of a group cost, and tells all of them.
func (c *certificate) publish(group []*draft) {
	for _, d := range group {
		c.published += d.cost
	}
	for _, d := range group {
		if c.published > 0 {
			d.PlanGap = max(0, (c.published-c.bound)/c.published)
		}
	}
}

// keepSolution has the last solution stand for a service that is carried over. With
// another network the problem is another one: its distances would go on from plan
// to plan.
func keepSolution(s, prev *Service) {
	if s.Problem != nil || prev == nil || prev.Solution == nil {
		return
	}
	s.Problem, s.Solution, s.Solved = prev.Problem, prev.Solution, prev.Solved
	s.CallCosts, s.Joint, s.PlanGap = prev.CallCosts, prev.Joint, prev.PlanGap
	s.PolicyGap, s.PolicyMS = prev.PolicyGap, prev.PolicyMS
}

// certify works out how far the published shares of a service are from the bound, where
// it is not that of a group, and what they cost, requests/s x ms; 0 if it is
// unknown.
func certify(s *Service) (cost float64) {
	if s.Solution == nil {
		return 0
	}
	cost, complete := costOf(s, func(source isobar.Locality) []float64 {
		if r := s.Result.Source(source); r != nil {
			return r.Shares
		}
		return nil
	})
	if !complete {
		return 0
	}
	if !s.Joint && cost > 0 {
		s.PlanGap = max(0, (cost-s.Solution.LowerBound)/cost)
	}
	return cost
}

// policyCost is what the policy costs above the bound, as a fraction and in ms of mean
// latency; see [Service].
func policyCost(s *Service, t *targets) (gap, ms float64) {
	wanted, complete := costOf(s, t.of)
	if !complete || wanted <= 0 {
		return 0, 0
	}
	served := t.from.total() * (1 - shedFraction(s.Problem.Demand, s.Solution.Shed))
	return max(0, (wanted-s.Solution.LowerBound)/wanted), max(0, wanted-s.Solution.Objective) / served
}

// costOf is the objective with other shares; incomplete where a source has none.
func costOf(s *Service, shares func(isobar.Locality) []float64) (objective float64, complete bool) {
	flows := make([][]float64, len(s.Solved))
	for i, source := range s.Solved {
		flows[i] = make([]float64, len(s.Sites))
		of := shares(source)
		if of == nil {
			return 0, false
		}
		served := s.Problem.Demand[i] - s.Solution.Shed[i] - s.Solution.Unreachable[i]
		for l := range s.Sites {
			flows[i][l] = of[l] * served
		}
	}
	return solver.Objective(*s.Problem, flows), true
}

func sameSites(a, b []assign.Site) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Group.Locality != b[i].Group.Locality {
			return false
		}
	}
	return true
}

// sumUp adds up the certificates of the services of a plan.
func sumUp(p *Plan, joint []certificate) {
	var demand, planned float64
	for _, c := range joint {
		p.Objective += c.objective
		p.LowerBound += c.bound
		demand += c.demand
		planned += max(c.published, c.bound)
	}
	for _, s := range p.Services {
		if s.Solution == nil || s.Joint {
			continue
		}
		p.Objective += s.Solution.Objective
		p.LowerBound += s.Solution.LowerBound
		if s.PlanGap < 1 {
			planned += s.Solution.LowerBound / (1 - s.PlanGap)
		}
		for i, d := range s.Problem.Demand {
			demand += d - s.Solution.Shed[i] - s.Solution.Unreachable[i]
		}
	}
	if p.Objective > 0 {
		p.Gap = (p.Objective - p.LowerBound) / p.Objective
	}
	if demand > 0 {
		p.ExcessMS = (p.Objective - p.LowerBound) / demand
	}
	if planned > 0 {
		p.PlanGap = (planned - p.LowerBound) / planned
	}
}
