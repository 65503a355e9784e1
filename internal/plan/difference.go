package plan

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// Difference is what a Preview shows: the services that would change.
type Difference struct {
	Version  string              `json:"version"`  // of the plan that it is compared with
	Ticks    int                 `json:"ticks"`    // until it settles
	Settled  bool                `json:"settled"`  // false: it had not, when that many ticks were played
	Services []ServiceDifference `json:"services"` // that differ, sorted
	Same     int                 `json:"same"`     // services that don't
}

// ServiceDifference is what a change of topology does to one service.
type ServiceDifference struct {
	Service    string               `json:"service"`
	Change     string               `json:"change"`              // new, removed or changed
	Hold       string               `json:"hold,omitempty"`      // why weights would not move
	Policy     isobar.Policy        `json:"policy"`              // after the change
	PolicyMS   float64              `json:"policy_ms,omitempty"` // mean latency that a policy other than latency costs above the optimum, when all has settled
	Drop       Three                `json:"drop"`                // fraction of the requests
	Localities []LocalityDifference `json:"localities"`          // sorted
	Sources    []SourceDifference   `json:"sources"`             // that differ, sorted
}

// Three is a number before, after the first tick, and when all has settled.
type Three struct {
	Before  float64 `json:"before"`
	First   float64 `json:"first"`
	Settled float64 `json:"settled"`
}

// LocalityDifference is a locality's load over its capacity; 0 without one.
type LocalityDifference struct {
	Locality    isobar.Locality `json:"locality"`
	Utilization Three           `json:"utilization"`
}

// SourceDifference is where a source's traffic goes.
type SourceDifference struct {
	Source isobar.Locality   `json:"source"`
	Demand float64           `json:"demand"` // requests/s, today's
	Shares []ShareDifference `json:"shares"` // that are not 0 throughout, sorted
}

// ShareDifference is a locality's share of a source's traffic.
type ShareDifference struct {
	Locality isobar.Locality `json:"locality"`
	Share    Three           `json:"share"`
}

// The kinds of change.
const (
	ChangeNew     = "new"
	ChangeRemoved = "removed"
	ChangeChanged = "changed"
)

// Difference tells what the preview found.
func (p *Preview) Difference() Difference {
	out := Difference{Version: p.Before.VersionString(), Ticks: p.last, Settled: p.Still, Services: []ServiceDifference{}}
	for _, name := range namesOf(p.Before, p.Settled) {
		if d, differs := p.service(name); differs {
			out.Services = append(out.Services, d)
		} else {
			out.Same++
		}
	}
	return out
}

func (p *Preview) service(name string) (d ServiceDifference, differs bool) {
	var at [3]*Service
	for i, plan := range []*Plan{p.Before, p.First, p.Settled} {
		at[i], _ = plan.Service(name)
	}
	d = ServiceDifference{Service: name, Localities: []LocalityDifference{}, Sources: []SourceDifference{}}
	switch {
	case at[0] == nil:
		d.Change, differs = ChangeNew, true
	case at[2] == nil:
		d.Change, differs = ChangeRemoved, true
	default:
		d.Change = ChangeChanged
	}
	if at[2] != nil {
		d.Hold, d.Policy, d.PolicyMS = at[2].Hold, at[2].Spec.Policy, at[2].PolicyMS
		differs = differs || (d.Hold != "" && p.changed[name]) // nothing moves, but for another reason
	}
	d.Drop = three(at, func(s *Service) float64 { return s.Result.Drop })
	differs = differs || d.Drop.differ(0)
	locate := func(s *Service) []isobar.Locality { return s.localities() }
	for _, l := range union(at, locate) {
		u := three(at, func(s *Service) float64 { return s.utilization(l) })
		d.Localities = append(d.Localities, LocalityDifference{l, u})
		differs = differs || u.differ(0.01)
	}
	sources := func(s *Service) (out []isobar.Locality) {
		for i := range s.Result.Sources {
			out = append(out, s.Result.Sources[i].Source)
		}
		return out
	}
	for _, source := range union(at, sources) {
		x := SourceDifference{Source: source, Shares: []ShareDifference{}}
		moved := false
		for _, s := range at {
			if s != nil && s.Result.Source(source) != nil {
				x.Demand = s.Result.Source(source).Demand
			}
		}
		for i := range d.Localities {
			l := d.Localities[i].Locality
			share := three(at, func(s *Service) float64 { return s.share(source, l) })
			if share != (Three{}) {
				x.Shares = append(x.Shares, ShareDifference{l, share})
			}
			moved = moved || share.differ(0)
		}
		if moved {
			d.Sources, differs = append(d.Sources, x), true
		}
	}
	return d, differs
}

func three(at [3]*Service, of func(*Service) float64) Three {
	var v [3]float64
	for i, s := range at {
		if s != nil && s.Result != nil {
			v[i] = of(s)
		}
	}
	return Three{v[0], v[1], v[2]}
}

func (t Three) differ(by float64) bool {
	return math.Abs(t.First-t.Before) > by || math.Abs(t.Settled-t.Before) > by
}

// union lists the localities that of gives for any of the services, sorted.
func union(at [3]*Service, of func(*Service) []isobar.Locality) []isobar.Locality {
	var out []isobar.Locality
	for _, s := range at {
		if s != nil {
			out = append(out, of(s)...)
		}
	}
	return sortedLocalities(out)
}

// utilization is the planned load of a locality over its capacity; 0 without.
func (s *Service) utilization(l isobar.Locality) float64 {
	for i := range s.Sites {
		if site := &s.Sites[i]; site.Group.Locality == l && site.Capacity > 0 {
			return (s.Result.Load[i] + site.Background) / site.Capacity
		}
	}
	return 0
}

func (s *Service) share(source, l isobar.Locality) float64 {
	r := s.Result.Source(source)
	if r == nil {
		return 0
	}
	for i := range s.Sites {
		if s.Sites[i].Group.Locality == l {
			return r.Shares[i]
		}
	}
	return 0
}
