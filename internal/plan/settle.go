package plan

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
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

// settle books one more calm tick, and looks for a better target once there were
// enough.
func (d *draft) settle() {
	if d.Solution == nil || d.Hold != "" || d.Solution.CeilingScale > 1 || d.Spec.Mode != isobar.ModeFull ||
		policyOf(d.Spec) != nil || len(d.in)+len(d.out) > 0 {
		return
	}
	calm := &Calm{Ticks: 1, Demand: slices.Clone(d.Problem.Demand)}
	if before := d.last; before != nil && before.Calm != nil && d.sameProblem(before) && before.Calm.holds(d.Problem.Demand) {
		calm.Ticks += before.Calm.Ticks
		for s, mean := range before.Calm.Demand {
			calm.Demand[s] = mean + (calm.Demand[s]-mean)/float64(min(calm.Ticks, calmMemory))
		}
	}
	d.Calm = calm
	if calm.Ticks%settleTicks == settleFirst && d.previous != nil {
		d.refine(calm.Demand)
	}
}

// holds tells whether demand only fluctuates around the mean.
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

// sameProblem tells whether nothing but demand differs from the plan before.
func (d *draft) sameProblem(before *Service) bool {
	return d.sameWays && before.Problem != nil && slices.Equal(d.Solved, before.Solved) &&
		slices.Equal(d.Problem.Swing, before.Problem.Swing) &&
		slices.Equal(d.Problem.Localities, before.Problem.Localities) &&
		slices.EqualFunc(d.Problem.Allowed, before.Problem.Allowed, slices.Equal[[]bool])
}

// refine solves for the mean demand, and takes that as the target if what is
// published costs more, or fills the fullest site more.
func (d *draft) refine(demand []float64) {
	p := *d.Problem
	p.Demand, p.WarmPrices = demand, d.Solution.Prices
	total := 0.0
	for _, rate := range demand {
		total += rate
	}
	best := evenly(&p, settleGain*total)
	published := d.publishedFlows(demand)
	if best == nil || published == nil {
		return
	}
	if solver.Objective(p, published)-best.Objective < settleGain*total && fullest(&p, published)-fullest(&p, best.Flows) < settleFullest {
		return
	}
	d.settled = make([][]float64, len(demand))
	for s := range d.settled {
		d.settled[s] = sharesOf(best.Flows[s])
	}
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
func (d *draft) publishedFlows(demand []float64) [][]float64 {
	flows := make([][]float64, len(demand))
	for s, source := range d.Solved {
		r := d.previous.Source(source)
		if r == nil || len(r.Shares) != len(d.Sites) {
			return nil
		}
		flows[s] = make([]float64, len(d.Sites))
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

// watchCalm ends the calm where shares moved for another reason.
func (d *draft) watchCalm() {
	if d.Calm == nil || d.previous == nil || d.settled != nil {
		return
	}
	for i := range d.Result.Sources {
		r := &d.Result.Sources[i]
		if before := d.previous.Source(r.Source); before == nil || before.Assignment != r.Assignment {
			d.Calm = nil
			return
		}
	}
}
