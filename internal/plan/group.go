package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/solver"
)

// certificate is what is proved of services that were solved together.
type certificate struct {
	objective, bound float64 // requests/s x ms
	demand           float64 // from outside, served, requests/s
	published        float64 // what the paced and rounded assignments cost
}

// decideGroup decides services that calls connect, callers first, or one alone.
// Each is solved together with all that its calls lead to. What its callers send
// is known by then: not what they would send in the optimum, but what the shares
// that are published for them make of it. So callees follow the pace of their
// callers. The certificate is that of the first problem, which is all of them.
func decideGroup(in *Input, group []*draft) *certificate {
	var sum *certificate
	joint := len(group) > 1
	for _, d := range group {
		for _, l := range d.in {
			d.Callers = append(d.Callers, l.from.Spec.Name)
		}
		d.dropCallers()
	}
	for at, d := range group {
		d.Joint = d.Joint || joint
		d.settleDemand()
		switch {
		case in.Trigger == assign.Rebase:
		case at == 0 && joint:
			sum = solveJointly(group)
		case len(d.out) > 0:
			solveJointly(group[at:])
		default:
			d.solve()
			d.settle()
		}
		var violations []invariant.Violation
		d.Result, violations = decide(d.assignInput(in.Trigger), in.Now)
		d.violations = append(d.violations, violations...)
		d.watchCalm()
		d.finish(in.Trigger)
		d.watchSwings(in)
		for _, l := range d.out {
			l.to.receive(l)
		}
	}
	if sum != nil {
		sum.publish(group)
	}
	return sum
}

// solveJointly solves services that stand before those they call, and gives the
// first of them, whose demand is known, its solution. Without an answer it
// gives none, and the first holds.
func solveJointly(rest []*draft) *certificate {
	index := make(map[*draft]int, len(rest))
	for i, d := range rest {
		index[d] = i
	}
	problem := solver.Problem{Services: make([]solver.Service, len(rest))}
	var solved []isobar.Locality
	for i, d := range rest {
		s, sources := d.build()
		s.Last, s.WarmPrices = nil, nil // those of services that are solved alone
		if i == 0 {
			solved = sources
		}
		for _, l := range d.out {
			s.Calls = append(s.Calls, solver.Call{Service: index[l.to], PerRequest: l.perRequest})
		}
		problem.Services[i] = *s
	}
	for _, d := range rest {
		for _, l := range d.out {
			l.to.addRows(&problem.Services[index[l.to]], l.from)
		}
	}
	solution, err := solver.Solve(problem)
	if err == nil {
		err = rest[0].solveKept(&problem, solved, &solution)
	}
	if err != nil {
		rest[0].Hold = "the solver refused the problem: " + err.Error()
		return nil
	}
	c := &certificate{objective: solution.Objective, bound: solution.LowerBound}
	for i := range rest {
		s := &solution.Services[i]
		for k, d := range problem.Services[i].Demand {
			c.demand += d - s.Shed[k] - s.Unreachable[k]
		}
	}
	if len(solved) > 0 && rest[0].capacity() > 0 {
		first := &solution.Services[0]
		first.Gap, first.ExcessMS = solution.Gap, solution.ExcessMS
		rest[0].take(&problem.Services[0], solved, first)
	}
	return c
}

// addRows makes the sites of a caller that is still to be decided sources.
func (d *draft) addRows(p *solver.Service, caller *draft) {
	for i := range caller.sites {
		at := caller.sites[i].Group.Locality
		p.Latency = append(p.Latency, d.distances(at))
		if prices := d.prices(at); prices != nil {
			p.Price = append(p.Price, prices)
		}
		if p.Allowed != nil {
			p.Allowed = append(p.Allowed, d.allowed(&sourceDemand{source: at}))
		}
		if p.Previous != nil {
			row := make([]float64, len(d.sites))
			if before := d.previous.Source(at); before != nil {
				for l, k := range d.mapSites(d.previous.Sites) {
					if k >= 0 {
						row[l] = before.Shares[k]
					}
				}
			}
			p.Previous = append(p.Previous, row)
		}
	}
}

// publish adds up what the assignments of a group cost, and tells all of them.
func (c *certificate) publish(group []*draft) {
	for _, d := range group {
		c.published += d.published
	}
	for _, d := range group {
		if c.published > 0 {
			d.PlanGap = max(0, (c.published-c.bound)/c.published)
		}
	}
}
