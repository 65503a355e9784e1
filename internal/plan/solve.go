package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// solve finds the best flows for the service's demand. A rebase keeps the last
// solution: current weights go on until the next tick.
func (d *draft) solve() {
	problem, solved := d.problem()
	if problem == nil {
		return
	}
	solution, err := solveSwung(problem)
	of := solver.Problem{Services: []solver.Service{*problem}}
	if err == nil {
		err = d.solveKept(&of, solved, &solution)
	}
	if err != nil {
		// Every number was validated on the way in, so this is an internal error;
		// holding is the answer that can't hurt.
		d.Hold = "the solver refused the problem: " + err.Error()
		return
	}
	problem.Last, problem.WarmPrices, problem.WarmSwing = nil, nil, nil // else they would live one plan longer
	d.take(problem, solved, &solution.Services[0])
}

// take makes a solution the service's.
func (d *draft) take(problem *solver.Service, solved []isobar.Locality, solution *solver.ServiceSolution) {
	d.Problem, d.Solved, d.Solution = problem, solved, solution
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

// problem builds the solver's input from sites and sources with demand; nil
// when nothing can be decided.
func (d *draft) problem() (*solver.Service, []isobar.Locality) {
	p, solved := d.build()
	if len(solved) == 0 || d.capacity() <= 0 {
		return nil, nil
	}
	d.swings(p, solved)
	return p, solved
}

// capacity is what all sites can serve, requests/s.
func (d *draft) capacity() float64 {
	sum := 0.0
	for l := range d.sites {
		sum += d.sites[l].Capacity
	}
	return sum
}

// localities are the sites as the solver sees them.
func (d *draft) localities() []solver.Locality {
	out := make([]solver.Locality, len(d.sites))
	for l := range d.sites {
		s := &d.sites[l]
		out[l] = solver.Locality{
			Capacity: s.Capacity, Servers: s.servers, Queues: max(1, s.queues),
			Ceiling: s.Ceiling, Background: s.Background,
		}
	}
	return out
}

// build makes a problem of whatever sources there are.
func (d *draft) build() (*solver.Service, []isobar.Locality) {
	p := &solver.Service{MaxShed: d.maxShed(), Localities: d.localities()}
	var solved []isobar.Locality
	for i := range d.sources {
		s := &d.sources[i]
		if s.demand == 0 {
			continue
		}
		solved = append(solved, s.source)
		p.Demand = append(p.Demand, s.demand)
		p.Latency = append(p.Latency, d.distances(s.source))
		if prices := d.prices(s.source); prices != nil {
			p.Price = append(p.Price, prices)
		}
		p.Allowed = append(p.Allowed, d.allowed(s))
	}
	if !slices.ContainsFunc(p.Allowed, func(row []bool) bool { return row != nil }) {
		p.Allowed = nil
	}
	d.warmStart(p, solved)
	return p, solved
}

// allowed tells which sites a source may use. Bars do not count where they would
// leave it nothing; what is forbidden stays so.
func (d *draft) allowed(s *sourceDemand) []bool {
	forbidden, reserve := d.confined(s)
	row := make([]bool, len(d.sites))
	fill := func(barred []bool) (some bool) {
		for l := range row {
			row[l] = (barred == nil || !barred[l]) && (forbidden == nil || !forbidden[l]) && (reserve == nil || !reserve[l])
			some = some || (row[l] && d.sites[l].Capacity > 0)
		}
		return some
	}
	if !fill(s.barred) {
		fill(nil)
	}
	return row
}

// distances gives the latency from a source to each site, ms. The caller must
// not change it.
func (d *draft) distances(source isobar.Locality) []float64 {
	if d.sameWays && d.last != nil && d.last.Problem != nil {
		if s, ok := slices.BinarySearchFunc(d.last.Solved, source, isobar.Locality.Compare); ok {
			return d.last.Problem.Latency[s]
		}
	}
	out := make([]float64, len(d.sites))
	for l := range d.sites {
		out[l], _ = d.network.Latency(source, d.sites[l].Group.Locality)
	}
	return out
}

// warmStart hands over what was published, so that ties fall towards it, and the
// last prices: as long as they prove that it still is as good as ties may be,
// nothing is solved.
func (d *draft) warmStart(p *solver.Service, solved []isobar.Locality) {
	if d.previous == nil {
		return
	}
	if d.last.CallCosts == nil {
		p.WarmPrices, p.Last = d.Prices, d.lastFlows(solved)
	}
	at := d.mapSites(d.previous.Sites)
	p.Previous = make([][]float64, len(solved))
	for s, source := range solved {
		p.Previous[s] = make([]float64, len(d.sites))
		before := d.previous.Source(source)
		if before == nil {
			// A new source has no past. It must not cost the others theirs.
			if near := d.nearest(p, s); near >= 0 {
				p.Previous[s][near] = p.Demand[s]
			}
			continue
		}
		for l := range d.sites {
			if at[l] >= 0 {
				p.Previous[s][l] = before.Shares[at[l]] * p.Demand[s]
			}
		}
	}
}

// lastFlows gives the flows of the last solution; nil where that was one of other
// sources or sites.
func (d *draft) lastFlows(solved []isobar.Locality) [][]float64 {
	if d.last.Solution == nil || d.last.Solution.Joint || !slices.Equal(solved, d.last.Solved) || !sameSites(d.last.Sites, d.Sites) {
		return nil
	}
	return d.last.Solution.Flows
}

// nearest is the closest site that a source may use, or -1.
func (d *draft) nearest(p *solver.Service, s int) int {
	best := -1
	for l := range d.sites {
		if d.sites[l].Capacity <= 0 || (p.Allowed != nil && !p.Allowed[s][l]) {
			continue
		}
		if best < 0 || p.Latency[s][l] < p.Latency[s][best] {
			best = l
		}
	}
	return best
}

// mapSites gives for each site of the draft the index of the same locality in
// other sites, or -1.
func (d *draft) mapSites(other []assign.Site) []int {
	out := make([]int, len(d.sites))
	for l := range d.sites {
		name := d.sites[l].Group.Locality
		if l < len(other) && other[l].Group.Locality == name {
			out[l] = l
			continue
		}
		out[l] = slices.IndexFunc(other, func(s assign.Site) bool { return s.Group.Locality == name })
	}
	return out
}

// assignInput is what package assign gets of the draft.
func (d *draft) assignInput(trigger assign.Trigger) assign.Input {
	in := assign.Input{
		Service: d.served(), Sites: d.Sites, Sources: make([]assign.Source, len(d.sources)),
		Prices: d.Prices, Previous: d.previous, Trigger: trigger, Hold: d.Hold, Settle: d.settled != nil,
	}
	switch {
	case d.Solution != nil:
		in.Shed = d.shed(shedFraction(d.Problem.Demand, d.Solution.Shed))
	case d.previous != nil && (trigger == assign.Rebase || total(d.sources) > 0): // there is nothing to serve with
		in.Shed = d.previous.Drop
	}
	d.degrade(&in)
	if d.Damping != nil && d.Damping.Level > 0 {
		in.Gain, in.Damp = d.Damping.Gain(), d.Damping.why()
	}
	d.applyPolicy()
	for i := range d.sources {
		in.Sources[i] = d.assignSource(&d.sources[i])
	}
	return in
}

// shed is the fraction that clients are told to drop, where the solver sheds another
// one: demand that is not proven raises no drop. It does not end one either, for most
// clients without a history have taken the place of others.
func (d *draft) shed(wanted float64) float64 {
	demand := total(d.sources)
	unproven := d.unproven(0) * demand
	if wanted <= 0 || unproven <= 0 {
		return wanted
	}
	proven := 0.0
	if unproven < demand {
		proven = min(wanted, max(0, wanted*demand-unproven)/(demand-unproven))
	}
	if d.previous != nil {
		proven = max(proven, min(wanted, d.previous.Drop))
	}
	return proven
}

// unproven is the fraction of the demand that is not proven, that of callers
// included, through so many calls at the most as there are services in a chain.
func (d *draft) unproven(depth int) float64 {
	measured, of := 0.0, 0.0
	if d.Load != nil {
		for i := range d.Load.Sources {
			measured += d.Load.Sources[i].Unproven
			of += d.Load.Sources[i].Demand
		}
	}
	out := 0.0
	if measured > 0 {
		out = min(1, measured/of)
	}
	if depth < maxCallDepth {
		for _, l := range d.in {
			out = max(out, l.from.unproven(depth+1))
		}
	}
	return out
}

// maxCallDepth bounds how far calls are followed.
const maxCallDepth = 8

// assignSource is what package assign gets of a source.
func (d *draft) assignSource(s *sourceDemand) assign.Source {
	out := assign.Source{Locality: s.source, Demand: s.demand, Distance: d.costs(s.source), Target: d.target(s.source), Barred: s.barred, Mix: d.mix(s.source)}
	out.Forbidden, out.Reserve = d.confined(s)
	d.boundShares(&out)
	return out
}

// openFirst is the part of its target that a share which comes back may always
// have; beyond it, it at most doubles.
const openFirst = 0.25

// boundShares tells how much a source may get of localities in which requests
// fail more than before, or did until a moment ago.
func (d *draft) boundShares(s *assign.Source) {
	if d.Mode() == isobar.ModeObserve || (len(d.Findings.Rising) == 0 && len(d.Findings.Opening) == 0) {
		return
	}
	most := func(l int, share float64) {
		if s.Most == nil {
			s.Most = make([]float64, len(d.sites))
			for k := range s.Most {
				s.Most[k] = 1
			}
		}
		s.Most[l] = min(s.Most[l], share)
	}
	before := d.previous.Source(s.Locality)
	if before == nil {
		return
	}
	at := d.mapSites(d.previous.Sites)
	for _, where := range d.Findings.Rising {
		if l := d.siteIndex(where); l >= 0 && at[l] >= 0 {
			most(l, before.Shares[at[l]])
		}
	}
	for _, o := range d.Findings.Opening {
		l := d.siteIndex(o.Locality)
		if o.Source != s.Locality || l < 0 || len(s.Target) != len(d.sites) {
			continue
		}
		if s.Back == nil {
			s.Back = make([]bool, len(d.sites))
		}
		s.Back[l] = true
		now := 0.0
		if at[l] >= 0 {
			now = before.Shares[at[l]]
		}
		most(l, min(o.Open*s.Target[l], max(openFirst*s.Target[l], 2*now)))
	}
}

// target gives the shares that the policy, or else the solver, wants of a
// source; nil when it has none.
func (d *draft) target(source isobar.Locality) []float64 {
	if d.policy != nil {
		return d.policy[slices.IndexFunc(d.sources, func(s sourceDemand) bool { return s.source == source })]
	}
	return d.optimum(source)
}

// optimum gives the solver's shares of a source; nil when it was not solved.
func (d *draft) optimum(source isobar.Locality) []float64 {
	s, ok := slices.BinarySearchFunc(d.Solved, source, isobar.Locality.Compare)
	switch {
	case !ok:
		return nil
	case d.settled != nil:
		return d.settled[s]
	}
	return sharesOf(d.Solution.Flows[s])
}

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
