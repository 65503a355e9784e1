package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// mix tells how a source's demand divides over the classes of its clients, as
// they were last seen to send. One window more or less of a client must not
// change at once what all of them drop.
func (d *draft) mix(source isobar.Locality) (mix assign.Mix) {
	rules := d.Spec.Criticality
	if rules == nil {
		return mix
	}
	var before assign.Mix
	if was := d.previous.Source(source); was != nil {
		before = was.Mix
	}
	total := 0.0
	if l := d.Load.Source(source); l != nil {
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

// maxShed is the most of the service's demand that may be dropped: what the
// operator allows, as far as the classes do.
func (d *draft) maxShed() float64 {
	rules := d.Spec.Criticality
	if rules == nil || d.Spec.MaxShed <= 0 {
		return d.Spec.MaxShed
	}
	demand, may := 0.0, 0.0
	for i := range d.sources {
		s := &d.sources[i]
		mix := d.mix(s.source)
		demand += s.demand
		may += s.demand * mix.Dropped(&rules.MaxShed)
	}
	if demand <= 0 {
		return d.Spec.MaxShed
	}
	return min(d.Spec.MaxShed, may/demand)
}

// ClassExplained is a class of clients of a service that sheds by class.
type ClassExplained struct {
	Class   isobar.Class `json:"class"`
	Rate    float64      `json:"rate"`     // requests/s of all sources
	Here    float64      `json:"here"`     // requests/s from this source
	Drop    float64      `json:"drop"`     // fraction that these clients are told to drop
	MaxShed float64      `json:"max_shed"` // the most that they may be told
	Clients []string     `json:"clients"`  // of this source
}

// classes tells who is shed; nil where the service has no classes.
func (s *Service) classes(source isobar.Locality) []ClassExplained {
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
			rate := r.Demand * r.Mix.Part(class)
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
