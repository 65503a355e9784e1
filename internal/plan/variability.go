package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/solver"
)

// Isobar can't follow demand that varies within report intervals: a decision is in
// force for both halves of a cycle. So the solver plans shares for both at once.
// It solves services that calls connect together, without variability.

// The solver needs ten to a hundred times as long with variable demand, 10 to 60 us
// for each pair of a source and a site (BenchmarkVariable of package solver), and the
// loop decides nothing else meanwhile.
const (
	variablePairs    = 2_500  // bound for one service
	allVariablePairs = 20_000 // bound for all services together: 200 services of ten zones
)

// chooseVariable selects the services to plan for variable demand, within the solver's
// time budget: first the services that the previous plan selected, so that the choice
// lasts, then those with the most varying requests.
func chooseVariable(drafts []*draft) {
	type candidate struct {
		d      *draft
		rank   int     // 0 if the previous plan selected it, else 1
		moving float64 // requests/s
	}
	// The pairs of sources and sites that the solver may have to look at.
	size := func(d *draft) int { return len(d.sources) * len(d.routes.sites) }
	var all []candidate
	for _, d := range drafts {
		if d == nil || d.Load == nil || d.linked() || size(d) > variablePairs {
			continue
		}
		c := candidate{d: d, rank: 1}
		if d.last != nil && d.last.Variability() > 0 {
			c.rank = 0
		}
		for i := range d.Load.Sources {
			c.moving += d.Load.Sources[i].Variability * d.Load.Sources[i].Demand
		}
		if c.moving > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.moving, a.moving))
	})
	remaining := allVariablePairs
	for _, c := range all {
		if size := size(c.d); size <= remaining {
			remaining -= size
			c.d.variable = true
		}
	}
}

// addVariability adds the variability of the sources to a problem.
func (p *problem) addVariability(measured *load.ServiceLoad, last *Service) {
	for i := range measured.Sources {
		l := &measured.Sources[i]
		if l.Variability <= 0 {
			continue
		}
		if s, ok := slices.BinarySearchFunc(p.solved, l.Source, isobar.Locality.Compare); ok {
			if p.Variability == nil {
				p.Variability = make([]float64, len(p.solved))
			}
			p.Variability[s] = l.Variability
		}
	}
	if p.Variability != nil && p.Last != nil {
		p.WarmVariability = last.Solution.Variability
	}
}

// solveVariable solves a problem. If demand exceeds capacity, it leaves out the
// variability: all sites are full then, whatever the shares are.
func solveVariable(p *solver.Service) (solver.Solution, error) {
	out, err := solver.Solve(solver.Problem{Services: []solver.Service{*p}})
	if err != nil || p.Variability == nil {
		return out, err
	}
	if s := &out.Services[0]; s.CeilingScale > 1 || shedFraction(p.Demand, s.Shed) > 0 {
		p.Variability, p.WarmVariability = nil, nil
		return solver.Solve(solver.Problem{Services: []solver.Service{*p}})
	}
	return out, nil
}

// variabilityOf returns the variability of a source's demand in the solved problem, as a
// fraction of the demand.
func (s *Service) variabilityOf(source isobar.Locality) float64 {
	if s.Problem == nil || s.Problem.Variability == nil {
		return 0
	}
	i, ok := slices.BinarySearchFunc(s.Solved, source, isobar.Locality.Compare)
	if !ok {
		return 0
	}
	return s.Problem.Variability[i]
}

// Variability returns that of the source whose demand varies most in the solved problem, as a
// fraction of its demand.
func (s *Service) Variability() float64 {
	if s.Problem == nil {
		return 0
	}
	most := 0.0
	for _, variability := range s.Problem.Variability {
		most = math.Max(most, variability)
	}
	return most
}

// whyVariable returns which demands a source's shares were planned for; empty if its
// demand does not vary.
func (s *Service) whyVariable(source isobar.Locality) string {
	variability := s.variabilityOf(source)
	if variability == 0 {
		return ""
	}
	i, _ := slices.BinarySearchFunc(s.Solved, source, isobar.Locality.Compare)
	mean := s.Problem.Demand[i]
	return fmt.Sprintf("demand varies by %.0f%% within report intervals: planned for %.0f and %.0f requests/s, around a mean of %.0f",
		100*variability, mean*(1-variability), mean*(1+variability), mean)
}
