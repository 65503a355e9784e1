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

// Demand that swings within report intervals can't be followed: what is decided is
// in force for both halves of the swing. So the shares are made for both at once.
// Services that calls connect are solved together, without.

// The solver needs ten to a hundred times as long where demand swings, 10 to 60 us
// for each pair of a source and a site (BenchmarkSwing of package solver), and
// nothing else is decided meanwhile.
const (
	swingPairs    = 2_500  // of a service, up to which its swing is planned for
	allSwingPairs = 20_000 // of all services for whose swings it is, 200 services of ten zones
)

// chooseSwings lets swing what the solver has time for: first the services for whose
// swing the plan before was made, so that the choice lasts, then those of which
// most requests come and go.
func chooseSwings(drafts []*draft) {
	type candidate struct {
		d      *draft
		rank   int     // 0 where the plan before was made for its swing, else 1
		moving float64 // requests/s
	}
	// The pairs of sources and sites that the solver may have to look at.
	size := func(d *draft) int { return len(d.sources) * len(d.routes.sites) }
	var all []candidate
	for _, d := range drafts {
		if d == nil || d.Load == nil || d.linked() || size(d) > swingPairs {
			continue
		}
		c := candidate{d: d, rank: 1}
		if d.last != nil && d.last.Swing() > 0 {
			c.rank = 0
		}
		for i := range d.Load.Sources {
			c.moving += d.Load.Sources[i].Swing * d.Load.Sources[i].Demand
		}
		if c.moving > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.moving, a.moving))
	})
	room := allSwingPairs
	for _, c := range all {
		if size := size(c.d); size <= room {
			room -= size
			c.d.swinging = true
		}
	}
}

// addSwing tells how far the sources of a problem swing.
func (p *problem) addSwing(measured *load.ServiceLoad, last *Service) {
	for i := range measured.Sources {
		l := &measured.Sources[i]
		if l.Swing <= 0 {
			continue
		}
		if s, ok := slices.BinarySearchFunc(p.solved, l.Source, isobar.Locality.Compare); ok {
			if p.Swing == nil {
				p.Swing = make([]float64, len(p.solved))
			}
			p.Swing[s] = l.Swing
		}
	}
	if p.Swing != nil && p.Last != nil {
		p.WarmSwing = last.Solution.Swing
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
	return fmt.Sprintf("demand varies by %.0f%% within report intervals: planned for %.0f and %.0f requests/s, around a mean of %.0f",
		100*swing, mean*(1-swing), mean*(1+swing), mean)
}
