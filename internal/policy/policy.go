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

// open reports whether source s may use place l: it has capacity, and nothing
// forbids it.
func (p *Problem) open(s, l int) bool {
	return p.Localities[l].Capacity > 0 && (p.Allowed == nil || p.Allowed[s][l])
}

// target is how much a place takes before it counts as full, requests/s:
// ceiling (0 = the default) times scale times capacity, less unmanaged load.
func (p *Problem) target(l int, scale float64) float64 {
	c := p.Localities[l].Ceiling
	if c == 0 {
		c = isobar.DefaultCeiling
	}
	return max(0, c*scale*p.Localities[l].Capacity-p.Localities[l].Unmanaged)
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

// Nearest sends every source to its closest place with capacity, however full
// that is. Places at the same distance share in proportion to their capacity.
// What a place does not keep for its health goes to the next.
func Nearest(p Problem) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	tiers := p.zoneTiers()
	for s, d := range p.Demand {
		left := 1.0
		for _, tier := range tiers[s] {
			left = p.hand(f[s], tier, left)
		}
		for l := range f[s] {
			f[s][l] *= d / max(1-left, leastHeadroom) // all of them spill: then each as much
		}
	}
	return f, nil
}

// hand gives a tier what is left of a source, and tells what it did not keep.
func (p *Problem) hand(row []float64, tier []int, left float64) float64 {
	total, kept := 0.0, 0.0
	for _, l := range tier {
		total += p.Localities[l].Capacity
	}
	for _, l := range tier {
		part := left * p.Localities[l].Capacity / total * p.keep(l)
		row[l] += part
		kept += part
	}
	return max(0, left-kept) // a tier that keeps all may add up to an ulp more
}

// Fixed splits every source by the weights of the places that it may use, and
// sends it to the nearest of those without a weight when no other is left. How
// full they are does not count.
func Fixed(p Problem) (Flows, error) {
	f, err := Nearest(p)
	if err != nil || p.Weights == nil {
		return f, err
	}
	for s, d := range p.Demand {
		total := 0.0
		for l, w := range p.Weights {
			if p.open(s, l) {
				total += max(0, w) * p.keep(l)
			}
		}
		if total <= 0 {
			continue
		}
		for l, w := range p.Weights {
			f[s][l] = 0
			if p.open(s, l) {
				f[s][l] = d * max(0, w) * p.keep(l) / total
			}
		}
	}
	return f, nil
}

// SprayToWorld spreads every source over all places in proportion to what they
// may take, wherever they are.
func SprayToWorld(p Problem) (Flows, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	f := p.flows()
	if p.Preferred == nil {
		p.spill(f, p.Demand)
		return f, nil
	}
	tiers := make([][][]int, len(p.Demand))
	for s := range tiers {
		tiers[s] = make([][]int, 2)
		for l := range p.Places {
			if p.open(s, l) {
				tiers[s][p.rank(l)] = append(tiers[s][p.rank(l)], l)
			}
		}
	}
	p.spill(f, p.pour(f, p.targets(), tiers))
	return f, nil
}

// spill adds what is left of each source to all places that it may use, in
// proportion to what they may take: where all are full, all overflow by the
// same factor.
func (p *Problem) spill(f Flows, left []float64) {
	for s, d := range left {
		if d <= 0 {
			continue
		}
		weights := p.weights(s)
		total := 0.0
		for _, w := range weights {
			total += w
		}
		for l, w := range weights {
			if w > 0 {
				f[s][l] += d * w / total
			}
		}
	}
}

// weights is what the places of a source may take, or, where unmanaged load leaves
// nothing of that anywhere, what they are made for.
func (p *Problem) weights(s int) []float64 {
	out := make([]float64, len(p.Places))
	some := false
	for l := range out {
		if p.open(s, l) {
			out[l] = p.target(l, 1)
			some = some || out[l] > 0
		}
	}
	if some {
		return out
	}
	for l := range out {
		if p.open(s, l) {
			out[l] = p.Localities[l].Capacity
		}
	}
	return out
}
