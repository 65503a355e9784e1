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

// sharesOf returns flows as fractions of their sum; nil when there is none.
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

// problem is the solver's input for one service.
type problem struct {
	*solver.Service

	solved []isobar.Locality // its sources, in the order of its demand
}

// newProblem makes a problem of the sources that have demand. prices are those of
// the last solution.
func newProblem(r *routes, from sources, maxShed float64, prices []float64, last *Service) problem {
	p := problem{Service: &solver.Service{MaxShed: maxShed, Localities: r.sites.localities()}}
	for i := range from {
		s := &from[i]
		if s.demand == 0 {
			continue
		}
		p.solved = append(p.solved, s.source)
		p.Demand = append(p.Demand, s.demand)
		p.Latency = append(p.Latency, r.latency(s.source))
		if price := r.prices(s.source); price != nil {
			p.Price = append(p.Price, price)
		}
		p.Allowed = append(p.Allowed, r.allowed(s))
	}
	if !slices.ContainsFunc(p.Allowed, func(row []bool) bool { return row != nil }) {
		p.Allowed = nil
	}
	p.warmStart(r.sites, prices, last)
	return p
}

// warmStart hands over what was published, so that ties fall towards it, and the
// last prices: as long as they prove that it still is as good as ties may be,
// nothing is solved.
func (p *problem) warmStart(at sites, prices []float64, last *Service) {
	if last == nil || last.Result == nil {
		return
	}
	if last.CallCosts == nil {
		p.WarmPrices, p.Last = prices, p.lastFlows(at, last)
	}
	were := at.in(last.Result.Sites)
	p.Previous = make([][]float64, len(p.solved))
	for s, source := range p.solved {
		p.Previous[s] = make([]float64, len(at))
		before := last.Result.Source(source)
		if before == nil {
			// A new source has no past. It must not cost the others theirs.
			if near := p.nearest(s); near >= 0 {
				p.Previous[s][near] = p.Demand[s]
			}
			continue
		}
		for l := range at {
			if were[l] >= 0 {
				p.Previous[s][l] = before.Shares[were[l]] * p.Demand[s]
			}
		}
	}
}

// lastFlows returns the flows of the last solution; nil where that was one of other
// sources or sites.
func (p *problem) lastFlows(at sites, last *Service) [][]float64 {
	if last.Solution == nil || last.Solution.Joint || !slices.Equal(p.solved, last.Solved) || !at.same(last.Sites) {
		return nil
	}
	return last.Solution.Flows
}

// nearest is the closest site that a source may use, or -1.
func (p *problem) nearest(s int) int {
	best := -1
	for l := range p.Localities {
		if p.Localities[l].Capacity <= 0 || (p.Allowed != nil && !p.Allowed[s][l]) {
			continue
		}
		if best < 0 || p.Latency[s][l] < p.Latency[s][best] {
			best = l
		}
	}
	return best
}

// forget drops what only the solver reads: it would live one plan longer.
func (p *problem) forget() { p.Last, p.WarmPrices, p.WarmVariability = nil, nil, nil }

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
