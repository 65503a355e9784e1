package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// problem is the solver's input for the demand as it is known now.
func (d *draft) problem() problem {
	return newProblem(&d.routes, d.sources, maxShedOf(&d.Service, d.sources, d.published()), d.Prices, d.last)
}

// solve finds the best flows for the service's demand.
func (d *draft) solve() {
	p := d.problem()
	if !d.solvable(p) {
		return
	}
	if d.variable {
		p.addVariability(d.Load, d.last)
	}
	solution, err := solveVariable(p.Service)
	of := solver.Problem{Services: []solver.Service{*p.Service}}
	if err == nil {
		err = solveKept(&of, &solution, p.solved, &d.Service, d.published())
	}
	if err != nil {
		// Every number was validated on the way in, so this is an internal error;
		// holding is the answer that can't hurt.
		d.Hold = "the solver refused the problem: " + err.Error()
		return
	}
	p.forget()
	d.take(p, &solution.Services[0])
}

// solvable reports whether there is anything to decide.
func (d *draft) solvable(p problem) bool { return len(p.solved) > 0 && d.routes.sites.capacity() > 0 }

// take makes a solution the service's.
func (d *draft) take(p problem, solution *solver.ServiceSolution) {
	d.Problem, d.Solved, d.Solution = p.Service, p.solved, solution
	d.Prices, d.CallCosts = solution.Prices, solution.CallCosts
	if d.CallCosts != nil {
		d.Prices = slices.Clone(d.Prices)
		for l, cost := range d.CallCosts {
			d.Prices[l] += cost
		}
	}
	for l := range d.Sites {
		d.Sites[l].Scale = max(1, d.Solution.Scale[l])
	}
}

// solveJointly solves services that stand before those they call, and returns the
// first of them, whose demand is known, its solution. Without an answer it
// gives none, and the first holds.
func solveJointly(rest []*draft) *certificate {
	index := make(map[*draft]int, len(rest))
	for i, d := range rest {
		index[d] = i
	}
	joint := solver.Problem{Services: make([]solver.Service, len(rest))}
	var first problem
	for i, d := range rest {
		p := d.problem()
		p.Last, p.WarmPrices = nil, nil // those of services that are solved alone
		if i == 0 {
			first = p
		}
		for _, l := range d.out {
			p.Calls = append(p.Calls, solver.Call{Service: index[l.to], PerRequest: l.perRequest})
		}
		joint.Services[i] = *p.Service
	}
	for _, d := range rest {
		for _, l := range d.out {
			addCaller(&joint.Services[index[l.to]], &l.to.routes, l.from.routes.sites, l.to.published())
		}
	}
	solution, err := solver.Solve(joint)
	if err == nil {
		err = solveKept(&joint, &solution, first.solved, &rest[0].Service, rest[0].published())
	}
	if err != nil {
		rest[0].Hold = "the solver refused the problem: " + err.Error()
		return nil
	}
	c := &certificate{objective: solution.Objective, bound: solution.LowerBound}
	for i := range rest {
		s := &solution.Services[i]
		for k, d := range joint.Services[i].Demand {
			c.demand += d - s.Shed[k] - s.Unreachable[k]
		}
	}
	if rest[0].solvable(first) {
		first.Service = &joint.Services[0]
		s := &solution.Services[0]
		s.Gap, s.ExcessMS = solution.Gap, solution.ExcessMS
		rest[0].take(first, s)
	}
	return c
}

// addCaller makes the sites of a caller that is still to be decided sources.
func addCaller(p *solver.Service, r *routes, caller sites, previous *assign.Result) {
	for i := range caller {
		at := caller[i].Group.Locality
		p.Latency = append(p.Latency, r.latency(at))
		if prices := r.prices(at); prices != nil {
			p.Price = append(p.Price, prices)
		}
		if p.Allowed != nil {
			p.Allowed = append(p.Allowed, r.allowed(&sourceDemand{source: at}))
		}
		if p.Previous != nil {
			row := make([]float64, len(r.sites))
			if before := previous.Source(at); before != nil {
				for l, k := range r.sites.in(previous.Sites) {
					if k >= 0 {
						row[l] = before.Shares[k]
					}
				}
			}
			p.Previous = append(p.Previous, row)
		}
	}
}

// carriedPrices are the prices of the last solution for sites that still exist, so
// that sources without demand are answered sensibly between solutions; nil where
// there are none.
func carriedPrices(at sites, prev *Service) []float64 {
	if prev == nil || prev.Prices == nil {
		return nil
	}
	prices := make([]float64, len(at))
	for l, i := range at.in(prev.Sites) {
		if i < 0 {
			return nil // a site without a price: wait for the next solution
		}
		prices[l] = prev.Prices[i]
	}
	return prices
}

// shedFraction is the part of the demand that is shed.
func shedFraction(demand, shed []float64) float64 {
	var d, s float64
	for i := range demand {
		d += demand[i]
		s += shed[i]
	}
	if d <= 0 {
		return 0
	}
	return s / d
}

// sharesOf gives flows as fractions of their sum; nil when there is none.
func sharesOf(flows []float64) []float64 {
	sum := 0.0
	for _, f := range flows {
		sum += f
	}
	if sum <= 0 {
		return nil
	}
	out := make([]float64, len(flows))
	for l, f := range flows {
		out[l] = f / sum
	}
	return out
}

// targets are the shares that each source is to get, however long the way there is.
type targets struct {
	from    sources
	policy  [][]float64 // per source; nil = the solver decides
	solved  []isobar.Locality
	optimum [][]float64 // per solved source
}

// targetsOf returns the shares of the service's policy, or else those of the solution, or
// better ones for calm demand, where there are any.
func targetsOf(of *Service, r *routes, from sources, better [][]float64) (targets, error) {
	t := targets{from: from, solved: of.Solved, optimum: better}
	shed := 0.0
	if of.Solution != nil {
		shed = shedFraction(of.Problem.Demand, of.Solution.Shed)
		if better == nil {
			t.optimum = make([][]float64, len(of.Solved))
			for s := range of.Solved {
				t.optimum[s] = sharesOf(of.Solution.Flows[s])
			}
		}
	}
	var err error
	t.policy, err = policyShares(of, r, from, shed)
	return t, err
}

// of returns the target of a source; nil when it has none.
func (t *targets) of(source isobar.Locality) []float64 {
	if t.policy != nil {
		return t.policy[slices.IndexFunc(t.from, func(s sourceDemand) bool { return s.source == source })]
	}
	if s, ok := slices.BinarySearchFunc(t.solved, source, isobar.Locality.Compare); ok {
		return t.optimum[s]
	}
	return nil
}
