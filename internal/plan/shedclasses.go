package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// stillPlaced is the part of a source's demand that is placed even if its clients
// drop all of it, so that there is an answer for them.
const stillPlaced = 1e-3

// solveKept solves a service with classes, of which something is shed, a second
// time. The solver sheds the same fraction of every source; but what matters less
// may come from some of them only, and then it is the demand of the others that
// has to find its place. problem is left as it is; solution gets the flows of
// what clients still send, and what they drop.
func (d *draft) solveKept(problem *solver.Problem, solved []isobar.Locality, solution *solver.Solution) error {
	s := &problem.Services[0]
	kept := d.kept(s, solved, solution.Services[0].Shed)
	if kept == nil {
		return nil
	}
	first := *s
	s.Demand, s.MaxShed, s.Last, s.WarmPrices = kept, 0, nil, nil
	again, err := solver.Solve(*problem)
	*s = first
	if err != nil {
		return err
	}
	*solution = again
	shed := solution.Services[0].Shed
	for i := range kept {
		shed[i] += first.Demand[i] - kept[i]
	}
	return nil
}

// kept is what clients of each source still send when the classes have dropped
// what is shed; nil where nothing is, or where there are no classes.
func (d *draft) kept(p *solver.Service, solved []isobar.Locality, shed []float64) []float64 {
	fraction := shedFraction(p.Demand, shed)
	if d.Spec.Criticality == nil || fraction <= 0 {
		return nil
	}
	sources := make([]assign.Source, len(solved))
	for i, source := range solved {
		sources[i] = assign.Source{Demand: p.Demand[i], Mix: d.mix(source)}
	}
	drops := assign.ShedByClass(fraction, sources, d.Spec.Criticality)
	out := slices.Clone(p.Demand)
	for i := range sources {
		out[i] *= max(stillPlaced, 1-sources[i].Mix.Dropped(&drops))
	}
	return out
}
