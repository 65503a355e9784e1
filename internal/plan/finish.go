package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// carryPrices keeps the prices of the last solution for sites that still
// exist, so that sources without demand are answered sensibly between
// solutions.
func (d *draft) carryPrices(prev *Service) {
	if prev == nil || prev.Prices == nil {
		return
	}
	at := d.mapSites(prev.Sites)
	prices := make([]float64, len(d.sites))
	for l, i := range at {
		if i < 0 {
			return // a site without a price: wait for the next solution
		}
		prices[l] = prev.Prices[i]
	}
	d.Prices = prices
}

// finish completes the service once it is assigned: how far the published
// shares are from the bound, and on a rebase the solution that stands.
func (d *draft) finish(trigger assign.Trigger) {
	prev, solved := d.last, d.Solution != nil
	// With another network the problem is another one: its distances would go on
	// from plan to plan.
	if trigger == assign.Rebase && !solved && d.Problem == nil && prev != nil && prev.Solution != nil && d.sameWays && d.previous == prev.Result {
		d.Problem, d.Solution, d.Solved = prev.Problem, prev.Solution, prev.Solved
		d.CallCosts, d.Joint, d.PlanGap = prev.CallCosts, prev.Joint, prev.PlanGap
		d.PolicyGap, d.PolicyMS = prev.PolicyGap, prev.PolicyMS
	}
	if d.Solution == nil {
		return
	}
	objective, complete := d.cost(func(source isobar.Locality) []float64 {
		if r := d.Result.Source(source); r != nil {
			return r.Shares
		}
		return nil
	})
	if !complete {
		return
	}
	d.published = objective
	if d.Joint || objective <= 0 {
		return
	}
	d.PlanGap = max(0, (objective-d.Solution.LowerBound)/objective)
	if d.policy == nil || !solved {
		return
	}
	if wanted, complete := d.cost(d.target); complete && wanted > 0 {
		served := total(d.sources) * (1 - shedFraction(d.Problem.Demand, d.Solution.Shed))
		d.PolicyGap = max(0, (wanted-d.Solution.LowerBound)/wanted)
		d.PolicyMS = max(0, wanted-d.Solution.Objective) / served
	}
}

// cost is the objective with other shares; incomplete where a source has none.
func (d *draft) cost(shares func(isobar.Locality) []float64) (objective float64, complete bool) {
	flows := make([][]float64, len(d.Solved))
	for s, source := range d.Solved {
		flows[s] = make([]float64, len(d.Sites))
		of := shares(source)
		if of == nil {
			return 0, false
		}
		served := d.Problem.Demand[s] - d.Solution.Shed[s] - d.Solution.Unreachable[s]
		for l := range d.Sites {
			flows[s][l] = of[l] * served
		}
	}
	return solver.Objective(*d.Problem, flows), true
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

// sum adds up the certificates of the services.
func (p *Plan) sum(joint []certificate) {
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
