package plan

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// Moves of less than a point are not published: most of them follow noise. But
// where demand stands still, what is published could stay a little beside the
// optimum for ever. So while a service is calm the mean of its demand is taken,
// and every now and then that is solved and published, however small the move.

// Calm is a time in which a service's shares stand still and its demand does
// nothing but fluctuate.
type Calm struct {
	Ticks  int       // so far
	Demand []float64 // per source of the problem, its mean lately, requests/s
}

const (
	// settleFirst is how long it has to be calm before the mean is solved, and
	// settleTicks from then on for each further time.
	settleFirst, settleTicks = 6, 12
	// calmMemory is how many ticks the mean reaches back, about.
	calmMemory = 24
	// calmNoise is how far the demand of a source may be from its mean, as a
	// fraction of that; calmTotal is allowed beside it, as a fraction of all demand.
	calmNoise, calmTotal = 0.1, 0.01
	// settleGain is what it must bring, in ms of mean latency.
	settleGain = 0.0005
	// settleTies is the part of what ties may cost that is spent on staying near
	// what is published, and exactTies that when the optimum itself is asked for.
	settleTies, exactTies = 0.05, 1e-3
	// settleEven is by how much less full the fullest sites are made where that
	// costs next to nothing, as a fraction; settleFullest is by how much less full
	// it must get to be published for that.
	settleEven, settleFullest = 0.003, 0.002
)

// settle books one more calm tick of a service that is solved, after the plan
// before, and looks for a better target once there were enough: shares per source of
// the problem, nil = nothing to be gained. same says that sites and network are those of
// before.
func settle(now, before *Service, same bool) (calm *Calm, better [][]float64) {
	if now.Solution == nil || now.Hold != "" || now.Solution.CeilingScale > 1 || now.Spec.Mode != isobar.ModeFull || policyOf(now.Spec) != nil {
		return nil, nil
	}
	calm = &Calm{Ticks: 1, Demand: slices.Clone(now.Problem.Demand)}
	if before != nil && before.Calm != nil && same && sameProblem(now, before) && before.Calm.holds(now.Problem.Demand) {
		calm.Ticks += before.Calm.Ticks
		for s, mean := range before.Calm.Demand {
			calm.Demand[s] = mean + (calm.Demand[s]-mean)/float64(min(calm.Ticks, calmMemory))
		}
	}
	if calm.Ticks%settleTicks == settleFirst && before != nil && before.Result != nil {
		better = refine(now, before.Result, calm.Demand)
	}
	return calm, better
}

// holds reports whether demand only fluctuates around the mean.
func (c *Calm) holds(demand []float64) bool {
	sum := 0.0
	for _, mean := range c.Demand {
		sum += mean
	}
	for s, mean := range c.Demand {
		if math.Abs(demand[s]-mean) > calmNoise*mean+calmTotal*sum {
			return false
		}
	}
	return true
}

// sameProblem reports whether the problems of a service differ in demand only, where
// sites and network are the same.
func sameProblem(now, before *Service) bool {
	return before.Problem != nil && slices.Equal(now.Solved, before.Solved) &&
		slices.Equal(now.Problem.Swing, before.Problem.Swing) &&
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
	best := evenly(&p, settleGain*total)
	published := publishedFlows(now, previous, demand)
	if best == nil || published == nil {
		return nil
	}
	if solver.Objective(p, published)-best.Objective < settleGain*total && fullest(&p, published)-fullest(&p, best.Flows) < settleFullest {
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
	most := fullest(p, best.Flows) * (1 - settleEven)
	even := *p
	even.Localities = slices.Clone(p.Localities)
	for l := range even.Localities {
		even.Localities[l].Ceiling = min(even.Localities[l].Ceiling, most)
	}
	if other := solve(&even, settleTies); most > 0 && other != nil && other.Objective <= best.Objective+limit {
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
