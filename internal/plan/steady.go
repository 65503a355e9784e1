package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plural"
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
	Demand []float64 // per source of the problem, its mean recently, requests/s
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
// full: if that costs no more than the limit, it is the better answer. It returns
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
		load := at.Unmanaged
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

// Damping is what is done about limit cycles of a service: its shares go only a
// part of their way at each tick, for a while, and then step by step more again.
// Immutable once it is part of a plan.
type Damping struct {
	Level int // each halves what shares go at a tick; 0 = nothing
	Left  int // ticks until one level less
	Found int // cycles that were found so far

	// Of the newest: where, by how much of the service's load, and how many
	// ticks there and back.
	Locality  isobar.Locality
	Amplitude float64
	Ticks     float64

	// Astray says that clients did not follow their shares when it was found: then
	// smaller steps of these would not help, and nothing is damped.
	Astray bool

	again        int // found since the damping was off
	oscillations *assign.Oscillations
	usable       int // endpoints, when the oscillations began
}

// Rules of damping.
const (
	maxDamping    = 3
	dampTicks     = 60 // at a level; doubled each time that a cycle is found again
	dampDoublings = 3
)

// Gain is which part of their way shares go at a tick, above 0 to 1.
func (d *Damping) Gain() float64 {
	if d == nil {
		return 1
	}
	return 1 / float64(int(1)<<d.Level)
}

// String says it in a line; empty while nothing is damped.
func (d *Damping) String() string {
	switch {
	case d == nil || d.Left == 0:
		return ""
	case d.Level == 0:
		return d.why() + ": nothing is damped, because clients do not follow their shares"
	}
	return fmt.Sprintf("%s: steps are damped to 1/%d, for %s at least", d.why(), 1<<d.Level, plural.Count(d.Left, "more tick", "more ticks"))
}

func (d *Damping) why() string {
	return fmt.Sprintf("the load of %s oscillated by %.1f percentage points in %.0f ticks while demand and health stayed", d.Locality, 100*d.Amplitude, d.Ticks)
}

// later is the damping a tick later.
func (d *Damping) later(deviates bool) *Damping {
	if d == nil || d.Left == 0 {
		return d
	}
	next := *d
	if next.Left--; next.Left == 0 {
		next.Level = max(0, next.Level-1)
		if next.Level > 0 {
			next.Left = dampTicks
		} else {
			next.again = 0
		}
	}
	if deviates {
		next.Level = 0
	}
	return &next
}

// watchCycles looks for limit cycles in what was decided, and returns the damping from then
// on. What begins again is not a cycle: other endpoints, another configuration or mode, a
// hold.
func watchCycles(s, prev *Service) *Damping {
	var before Damping
	if s.Damping != nil {
		before = *s.Damping
	}
	usable := 0
	for i := range s.Sites {
		if !s.Sites[i].Drained {
			usable += s.Sites[i].Group.Usable()
		}
	}
	if prev == nil || usable != before.usable || !sameSpec(prev.Spec, s.Spec) || prev.Mode() != s.Mode() || s.Hold != "" {
		before.oscillations = nil
	}
	// What is measured, not what is steered: deviations take from that, and they
	// may be what oscillates.
	var demand []float64
	if s.Load != nil {
		for i := range s.Load.Sources {
			demand = append(demand, s.Load.Sources[i].Demand)
		}
	}
	oscillations, found := before.oscillations.Observe(s.Result.Load, demand)
	next := before
	next.oscillations, next.usable = oscillations, usable
	if found != nil {
		next.Locality, next.Amplitude, next.Ticks = s.Sites[found.Site].Group.Locality, found.Amplitude, found.Ticks
		next.Left, next.Astray = dampTicks<<min(next.again, dampDoublings), deviates(&s.Deviations)
		if next.Level = min(next.Level+1, maxDamping); next.Astray {
			next.Level = 0
		}
		next.Found++
		next.again++
	}
	return &next
}

// deviates reports whether clients do not follow their assignments.
func deviates(f *load.Deviations) bool { return len(f.Deviating) > 0 || len(f.Unmanaged) > 0 }
