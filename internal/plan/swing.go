package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/solver"
)

// Demand that swings within report intervals can't be followed: what is decided is
// in force for both halves of the swing. So the shares are made for both at once.
// Services that calls connect are solved together, without.

// swingPairs is up to how many pairs of sources and sites swings are planned for.
// The solver needs a hundred times as long for them, and nothing else is decided
// meanwhile: with 100 zones it would be seconds.
const swingPairs = 2500

// swings tells the problem how far its sources swing.
func (d *draft) swings(p *solver.Service, solved []isobar.Locality) {
	if d.Load == nil || len(d.in)+len(d.out) > 0 || len(solved)*len(d.sites) > swingPairs {
		return
	}
	for i := range d.Load.Sources {
		l := &d.Load.Sources[i]
		if l.Swing <= 0 {
			continue
		}
		if s, ok := slices.BinarySearchFunc(solved, l.Source, isobar.Locality.Compare); ok {
			if p.Swing == nil {
				p.Swing = make([]float64, len(solved))
			}
			p.Swing[s] = l.Swing
		}
	}
	if p.Swing != nil && p.Last != nil {
		p.WarmSwing = d.last.Solution.Swing
	}
}

// solveSwung solves a problem. From demand that does not fit it takes the swing:
// there all sites are as full as they may be, whatever is sent where.
func solveSwung(p *solver.Service) (solver.Solution, error) {
	out, err := solver.Solve(solver.Problem{Services: []solver.Service{*p}})
	if err != nil || p.Swing == nil {
		return out, err
	}
	if s := &out.Services[0]; s.CeilingScale > 1 || shedFraction(p.Demand, s.Shed) > 0 {
		p.Swing, p.WarmSwing = nil, nil
		return solver.Solve(solver.Problem{Services: []solver.Service{*p}})
	}
	return out, nil
}

// swing is how far the demand of a source swings by what was solved, as a fraction
// of it.
func (s *Service) swing(source isobar.Locality) float64 {
	if s.Problem == nil || s.Problem.Swing == nil {
		return 0
	}
	i, ok := slices.BinarySearchFunc(s.Solved, source, isobar.Locality.Compare)
	if !ok {
		return 0
	}
	return s.Problem.Swing[i]
}

// Swing is how far the demand of the source swings that swings most, by what was
// solved, as a fraction of its demand.
func (s *Service) Swing() float64 {
	if s.Problem == nil {
		return 0
	}
	most := 0.0
	for _, swing := range s.Problem.Swing {
		most = math.Max(most, swing)
	}
	return most
}

// whySwung says for what a source's shares were made; empty where it does not swing.
func (s *Service) whySwung(source isobar.Locality) string {
	swing := s.swing(source)
	if swing == 0 {
		return ""
	}
	i, _ := slices.BinarySearchFunc(s.Solved, source, isobar.Locality.Compare)
	mean := s.Problem.Demand[i]
	return fmt.Sprintf("demand swings by %.0f%% within report intervals: planned for %.0f and %.0f requests/s, around a mean of %.0f",
		100*swing, mean*(1-swing), mean*(1+swing), mean)
}
