// Package policy holds the rules of thumb by which others place load, as pure
// functions from a problem to flows: those of Google's service mesh under their
// published names, and plain locality. They know ceilings and distances, but
// neither queues nor prices. Nothing here is paced or rounded.
package policy

import (
	"fmt"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/solver"
)

// Problem is one service to place, with the names of its indices: regions and
// zones matter to policies.
type Problem struct {
	solver.Service

	Sources []isobar.Locality // of Demand
	Places  []isobar.Locality // of Localities
	Weights []float64         // of Places, for Fixed; may be nil
	// Preferred places are filled before the others; nil = none.
	Preferred []bool
	// Keep is how much of its share a place keeps because of its health, (0, 1];
	// nil = all. SprayToWorld does not look at it: there nothing is nearer.
	Keep []float64
}

// Flows are requests/s [source][locality]. A source without any place that it
// may use has a row of zeros; all others send their whole demand.
type Flows [][]float64

// Func is a policy. It returns an error only where the problem's slices do not
// fit together.
type Func func(Problem) (Flows, error)

// ErrShape says that the slices of a problem do not fit together.
var ErrShape = fmt.Errorf("policy: %w: slices of different lengths", isobar.ErrInvalid)

func (p *Problem) check() error {
	if len(p.Sources) != len(p.Demand) || len(p.Places) != len(p.Localities) || len(p.Latency) != len(p.Demand) ||
		(p.Weights != nil && len(p.Weights) != len(p.Places)) ||
		(p.Preferred != nil && len(p.Preferred) != len(p.Places)) || (p.Keep != nil && len(p.Keep) != len(p.Places)) {
		return ErrShape
	}
	for _, row := range p.Latency {
		if len(row) != len(p.Places) {
			return ErrShape
		}
	}
	if p.Allowed == nil {
		return nil
	}
	if len(p.Allowed) != len(p.Demand) {
		return ErrShape
	}
	for _, row := range p.Allowed {
		if len(row) != len(p.Places) {
			return ErrShape
		}
	}
	return nil
}

// open tells whether source s may use place l: it has capacity, and nothing
// forbids it.
func (p *Problem) open(s, l int) bool {
	return p.Localities[l].Capacity > 0 && (p.Allowed == nil || p.Allowed[s][l])
}

// target is how much a place takes before it counts as full, requests/s:
// ceiling (0 = the default) times scale times capacity, less background.
func (p *Problem) target(l int, scale float64) float64 {
	c := p.Localities[l].Ceiling
	if c == 0 {
		c = isobar.DefaultCeiling
	}
	return max(0, c*scale*p.Localities[l].Capacity-p.Localities[l].Background)
}

func (p *Problem) targets() []float64 {
	out := make([]float64, len(p.Places))
	for l := range out {
		out[l] = p.target(l, 1)
	}
	return out
}

func (p *Problem) flows() Flows {
	f := make(Flows, len(p.Demand))
	for s := range f {
		f[s] = make([]float64, len(p.Places))
	}
	return f
}

// rank is 0 for places that are filled first, 1 for others.
func (p *Problem) rank(l int) int {
	if p.Preferred == nil || p.Preferred[l] {
		return 0
	}
	return 1
}

func (p *Problem) keep(l int) float64 {
	if p.Keep == nil {
		return 1
	}
	return p.Keep[l]
}
