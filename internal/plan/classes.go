package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// mixOf returns how a source's demand divides over the classes of its clients, as
// they were last seen to send. One window more or less of a client must not
// change at once what all of them drop.
func mixOf(of *Service, source isobar.Locality, previous *assign.Result) (mix assign.Mix) {
	rules := of.Spec.Criticality
	if rules == nil {
		return mix
	}
	var before assign.Mix
	if was := previous.Source(source); was != nil {
		before = was.Mix
	}
	total := 0.0
	if l := of.Load.Source(source); l != nil {
		rest := l.Raw
		for _, c := range l.Clients {
			mix[rules.ClassOf(c.Name)] += c.Rate
			rest -= c.Rate
		}
		mix[isobar.ClassCritical] += max(0, rest) // clients beyond the number that is kept
		for _, rate := range mix {
			total += rate
		}
	}
	if total < minDemand {
		return before
	}
	known := before != assign.Mix{}
	for c := range mix {
		mix[c] /= total
		if known {
			mix[c] = (mix[c] + before[c]) / 2
		}
	}
	return mix
}

// maxShedOf is the most of the service's demand that may be dropped: what the
// operator allows, as far as the classes do.
func maxShedOf(of *Service, from sources, previous *assign.Result) float64 {
	rules := of.Spec.Criticality
	if rules == nil || of.Spec.MaxShed <= 0 {
		return of.Spec.MaxShed
	}
	demand, may := 0.0, 0.0
	for i := range from {
		s := &from[i]
		mix := mixOf(of, s.source, previous)
		demand += s.demand
		may += s.demand * mix.Dropped(&rules.MaxShed)
	}
	if demand <= 0 {
		return of.Spec.MaxShed
	}
	return min(of.Spec.MaxShed, may/demand)
}

// stillPlaced is the part of a source's demand that is placed even if its clients
// drop all of it, so that there is an answer for them.
const stillPlaced = 1e-3

// solveKept solves a service with classes, of which something is shed, a second
// time. The solver sheds the same fraction of every source; but what matters less
// may come from some of them only, and then it is the demand of the others that
// has to find its place. problem is left as it is; solution gets the flows of
// what clients still send, and what they drop.
func solveKept(problem *solver.Problem, solution *solver.Solution, solved []isobar.Locality, of *Service, previous *assign.Result) error {
	s := &problem.Services[0]
	kept := keptDemand(s, solution.Services[0].Shed, solved, of, previous)
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

// keptDemand is what clients of each source still send when the classes have dropped
// what is shed; nil where nothing is, or where there are no classes.
func keptDemand(p *solver.Service, shed []float64, solved []isobar.Locality, of *Service, previous *assign.Result) []float64 {
	fraction := shedFraction(p.Demand, shed)
	if of.Spec.Criticality == nil || fraction <= 0 {
		return nil
	}
	sources := make([]assign.Source, len(solved))
	for i, source := range solved {
		sources[i] = assign.Source{Demand: p.Demand[i], Mix: mixOf(of, source, previous)}
	}
	drops := assign.ShedByClass(fraction, sources, of.Spec.Criticality)
	out := slices.Clone(p.Demand)
	for i := range sources {
		out[i] *= max(stillPlaced, 1-sources[i].Mix.Dropped(&drops))
	}
	return out
}

// ClassExplained is a class of clients of a service that sheds by class.
type ClassExplained struct {
	Class   isobar.Class `json:"class"`
	Rate    float64      `json:"rate"`     // requests/s of all sources
	Here    float64      `json:"here"`     // requests/s from this source
	Drop    float64      `json:"drop"`     // fraction that the assignment makes these clients drop
	MaxShed float64      `json:"max_shed"` // highest fraction that the assignment may make them drop
	Clients []string     `json:"clients"`  // of this source
}

// classesOf tells who is shed; nil where the service has no classes.
func classesOf(s *Service, source isobar.Locality) []ClassExplained {
	rules := s.Spec.Criticality
	if rules == nil {
		return nil
	}
	out := make([]ClassExplained, isobar.Classes)
	for c := range out {
		class := isobar.Class(c)
		x := ClassExplained{Class: class, MaxShed: rules.MaxShed[c], Clients: []string{}}
		if s.Result.Classes != nil {
			x.Drop = s.Result.Classes.Drops[c]
		}
		for i := range s.Result.Sources {
			r := &s.Result.Sources[i]
			rate := r.Demand * r.Mix.Fraction(class)
			if x.Rate += rate; r.Source == source {
				x.Here = rate
			}
		}
		out[c] = x
	}
	if l := s.Load.Source(source); l != nil {
		for _, c := range l.Clients {
			x := &out[rules.ClassOf(c.Name)]
			x.Clients = append(x.Clients, c.Name)
		}
	}
	return out
}

// saveClasses and reviveClasses keep drops by class over a restart.
func saveClasses(r *assign.Result) []float64 {
	if r.Classes == nil || r.Drop <= 0 {
		return nil
	}
	return append([]float64(nil), r.Classes.Drops[:]...)
}

func reviveClasses(spec *isobar.Service, saved []float64) *isobar.ClassDrops {
	if spec.Criticality == nil || len(saved) != isobar.Classes {
		return nil
	}
	out := &isobar.ClassDrops{Criticality: spec.Criticality}
	for c, d := range saved {
		if d != d {
			return nil
		}
		out.Drops[c] = clamp(d, spec.Criticality.MaxShed[c])
	}
	return out
}

// saveMix and reviveMix do the same for the classes of a source's clients.
func saveMix(m assign.Mix) []float64 {
	if (m == assign.Mix{}) {
		return nil
	}
	return append([]float64(nil), m[:]...)
}

func reviveMix(saved []float64) (m assign.Mix) {
	if len(saved) != len(m) {
		return m
	}
	for c, v := range saved {
		if !(v >= 0 && v <= 1) {
			return assign.Mix{}
		}
		m[c] = v
	}
	return m
}
