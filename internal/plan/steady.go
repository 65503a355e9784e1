package plan

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// Moves of less than a point are not published: most of them follow noise. But
// with steady demand the published shares could stay a little beside the optimum for
// ever. So the plan keeps the mean of steady demand, and solves for it at intervals;
// it publishes that solution, however small the move.

// SteadyDemand is a time in which a service's shares do not move and its demand only
// fluctuates.
type SteadyDemand struct {
	Ticks  int       // so far
	Demand []float64 // per source of the problem, its mean lately, requests/s
}

const (
	// refineFirst is after how many steady ticks the mean is solved first, and refineTicks
	// the interval from then on.
	refineFirst, refineTicks = 6, 12
	// steadyMemory is how many ticks the mean reaches back, about.
	steadyMemory = 24
	// steadyNoise is how far the demand of a source may be from its mean, as a
	// fraction of that; steadyTotal is allowed beside it, as a fraction of all demand.
	steadyNoise, steadyTotal = 0.1, 0.01
	// refineGain is the least gain that is published, in ms of mean latency.
	refineGain = 0.0005
	// refineTies is the fraction of the cost of ties that may be spent on staying near
	// the published shares, and exactTies the one with which the optimum itself is solved.
	refineTies, exactTies = 0.05, 1e-3
	// refineEven is by how much less full the fullest sites are made where that
	// costs next to nothing, as a fraction; refineFullest is by how much less full
	// it must get to be published for that.
	refineEven, refineFullest = 0.003, 0.002
)

// refineSteady counts one more steady tick of a solved service after the previous plan,
// and looks for a better target at the intervals above: shares per source of
// the problem, nil = no gain. same says that sites and network did not change.
func refineSteady(now, before *Service, same bool) (steady *SteadyDemand, better [][]float64) {
	if now.Solution == nil || now.Hold != "" || now.Solution.CeilingScale > 1 || now.Spec.Mode != isobar.ModeFull || policyOf(now.Spec) != nil {
		return nil, nil
	}
	steady = &SteadyDemand{Ticks: 1, Demand: slices.Clone(now.Problem.Demand)}
	if before != nil && before.Steady != nil && same && sameProblem(now, before) && before.Steady.holds(now.Problem.Demand) {
		steady.Ticks += before.Steady.Ticks
		for s, mean := range before.Steady.Demand {
			steady.Demand[s] = mean + (steady.Demand[s]-mean)/float64(min(steady.Ticks, steadyMemory))
		}
	}
	if steady.Ticks%refineTicks == refineFirst && before != nil && before.Result != nil {
		better = refine(now, before.Result, steady.Demand)
	}
	return steady, better
}

// holds reports whether demand only fluctuates around the mean.
func (c *SteadyDemand) holds(demand []float64) bool {
	sum := 0.0
	for _, mean := range c.Demand {
		sum += mean
	}
	for s, mean := range c.Demand {
		if math.Abs(demand[s]-mean) > steadyNoise*mean+steadyTotal*sum {
			return false
		}
	}
	return true
}

// sameProblem reports whether the problems of a service differ in demand only, where
// sites and network are the same.
func sameProblem(now, before *Service) bool {
	return before.Problem != nil && slices.Equal(now.Solved, before.Solved) &&
		slices.Equal(now.Problem.Variability, before.Problem.Variability) &&
		slices.Equal(now.Problem.Localities, before.Problem.Localities) &&
		slices.EqualFunc(now.Problem.Allowed, before.Problem.Allowed, slices.Equal[[]bool])
}

// refine solves for the mean demand, and returns the shares of that as the target if what
// is published costs more, or fills the fullest site more.
func refine(now *Service, previous *assign.Result, demand []float64) [][]float64 {
	p := *now.Problem
	p.Demand, p.WarmPrices = demand, now.Solution.Prices
	total := 0.0
	for _, rate := range demand {
		total += rate
	}
	best := evenly(&p, refineGain*total)
	published := publishedFlows(now, previous, demand)
	if best == nil || published == nil {
		return nil
	}
	if solver.Objective(p, published)-best.Objective < refineGain*total && fullest(&p, published)-fullest(&p, best.Flows) < refineFullest {
		return nil
	}
	out := make([][]float64, len(demand))
	for s := range out {
		out[s] = sharesOf(best.Flows[s])
	}
	return out
}

// evenly solves a problem, and once more with the fullest sites a little less
// full: if that costs no more than the limit, it is the better answer. It gives
// nil where demand does not fit.
func evenly(p *solver.Service, limit float64) *solver.ServiceSolution {
	solve := func(p *solver.Service, ties float64) *solver.ServiceSolution {
		p.Ties = ties
		solution, err := solver.Solve(solver.Problem{Services: []solver.Service{*p}})
		if err != nil || solution.Services[0].CeilingScale > 1 {
			return nil
		}
		return &solution.Services[0]
	}
	best := solve(p, exactTies)
	if best == nil {
		return nil
	}
	most := fullest(p, best.Flows) * (1 - refineEven)
	even := *p
	even.Localities = slices.Clone(p.Localities)
	for l := range even.Localities {
		even.Localities[l].Ceiling = min(even.Localities[l].Ceiling, most)
	}
	if other := solve(&even, refineTies); most > 0 && other != nil && other.Objective <= best.Objective+limit {
		return other
	}
	return best
}

// publishedFlows are the published shares of demand; nil where a source has none.
func publishedFlows(now *Service, previous *assign.Result, demand []float64) [][]float64 {
	flows := make([][]float64, len(demand))
	for s, source := range now.Solved {
		r := previous.Source(source)
		if r == nil || len(r.Shares) != len(now.Sites) {
			return nil
		}
		flows[s] = make([]float64, len(now.Sites))
		for l, share := range r.Shares {
			flows[s][l] = share * demand[s]
		}
	}
	return flows
}

// fullest is the utilization of the fullest site.
func fullest(p *solver.Service, flows [][]float64) float64 {
	most := 0.0
	for l := range p.Localities {
		at := &p.Localities[l]
		load := at.Background
		for s := range flows {
			load += flows[s][l]
		}
		if at.Capacity > 0 {
			most = max(most, load/at.Capacity)
		}
	}
	return most
}

// moved reports whether a source gets something else than in the result before.
func moved(now, before *assign.Result) bool {
	return slices.ContainsFunc(now.Sources, func(r assign.SourceResult) bool {
		was := before.Source(r.Source)
		return was == nil || was.Assignment != r.Assignment
	})
}
