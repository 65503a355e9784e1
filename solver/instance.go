package solver

import (
	"math"
	"slices"
)

// instance is a service in the shape that the algorithms work on.
type instance struct {
	service             *Service
	sources, localities int
	curves              []curve
	warm                bool      // the service has prices that are fit to start from
	cost                []float64 // per arc a = source*localities + locality
	open                []bool    // per arc: allowed, and the locality has capacity
	complete            bool      // every source may use every locality
	served              []float64 // demand left after what is unreachable and shed
	shed, unreachable   []float64
	scale               []float64 // of the ceilings, per locality
}

func newInstance(s *Service) *instance {
	in := &instance{service: s, sources: len(s.Demand), localities: len(s.Localities)}
	in.warm = plausible(s.WarmPrices)
	n := in.sources * in.localities
	in.curves = make([]curve, in.localities)
	in.scale = make([]float64, in.localities)
	for l := range in.curves {
		in.curves[l] = newCurve(s.Localities[l])
		in.scale[l] = 1
	}
	in.cost = make([]float64, n)
	in.open = make([]bool, n)
	in.complete = true
	in.served = slices.Clone(s.Demand)
	for i, d := range in.served {
		if d < minDemand {
			in.served[i] = 0
		}
	}
	in.shed = make([]float64, in.sources)
	in.unreachable = make([]float64, in.sources)
	for i := range in.sources {
		some := false
		for l := range in.localities {
			a := i*in.localities + l
			in.cost[a] = s.cost(i, l)
			in.open[a] = s.open(i, l)
			some = some || in.open[a]
			if !in.open[a] && in.curves[l].capacity > 0 {
				in.complete = false
			}
		}
		if !some {
			in.unreachable[i], in.served[i] = in.served[i], 0
		}
	}
	return in
}

// reach returns those of the localities that any of the sources may use.
func (in *instance) reach(sources, localities []int) []int {
	var out []int
	for _, l := range localities {
		for _, s := range sources {
			if in.open[s*in.localities+l] {
				out = append(out, l)
				break
			}
		}
	}
	return out
}

func (in *instance) openAmong(sources, localities []int) []bool {
	open := make([]bool, 0, len(sources)*len(localities))
	for _, s := range sources {
		for _, l := range localities {
			open = append(open, in.open[s*in.localities+l])
		}
	}
	return open
}

// without returns the sorted list a without the elements of the sorted list b.
func without(a, b []int) []int {
	out := make([]int, 0, len(a))
	for _, v := range a {
		if _, found := slices.BinarySearch(b, v); !found {
			out = append(out, v)
		}
	}
	return out
}

func sumOf(values []float64, indices []int) float64 {
	total := 0.0
	for _, i := range indices {
		total += values[i]
	}
	return total
}

// variable reports whether any served demand varies.
func (in *instance) variable() bool {
	for s, variability := range in.service.Variability {
		if variability > 0 && in.served[s] > 0 {
			return true
		}
	}
	return false
}

// variabilityOf returns the variability of the sources of a component; nil if none varies.
func (in *instance) variabilityOf(sources []int) []float64 {
	if !in.variable() {
		return nil
	}
	out := make([]float64, len(sources))
	for i, s := range sources {
		out[i] = in.service.Variability[s]
	}
	return out
}

// minShed is the smallest fraction worth shedding; less is rounding.
const minShed = 1e-9

// shedOverflow gives up what does not fit under the ceilings, up to the
// service's fraction of its demand: in each part that is too full the same
// fraction of every source, and over the parts in proportion to what is too much.
func (in *instance) shedOverflow() {
	if in.service.MaxShed < minShed {
		return
	}
	ramps := make([]ramp, in.localities)
	for l := range ramps {
		ramps[l].slope = in.curves[l].headroom(1)
	}
	total, excess := 0.0, 0.0
	for _, d := range in.served {
		total += d
	}
	parts := in.partition(in.served, ramps)
	for _, p := range parts {
		excess += in.excessOf(p)
	}
	if excess <= 0 {
		return
	}
	granted := math.Min(1, in.service.MaxShed*total/excess)
	for _, p := range parts {
		over := in.excessOf(p)
		if over <= 0 {
			continue
		}
		fraction := granted * over / sumOf(in.served, p.sources)
		for _, s := range p.sources {
			in.shed[s] = math.Min(in.served[s], fraction*in.served[s])
			if in.served[s] -= in.shed[s]; in.served[s] < minDemand {
				in.served[s] = 0
			}
		}
	}
}

// fits reports whether nothing was shed.
func (in *instance) fits() bool {
	for _, shed := range in.shed {
		if shed > 0 {
			return false
		}
	}
	return true
}

// excessOf is the demand of a part beyond its ceilings.
func (in *instance) excessOf(p component) float64 {
	if !p.saturated || p.factor <= 1+fullSlack {
		return 0
	}
	headroom := 0.0
	for _, l := range p.localities {
		headroom += in.curves[l].headroom(1)
	}
	return math.Max(0, sumOf(in.served, p.sources)-headroom)
}

// ceilings are the headrooms as functions of the factor on the ceilings.
func (in *instance) ceilings() []ramp {
	ramps := make([]ramp, in.localities)
	for l := range ramps {
		c := &in.curves[l]
		ramps[l] = ramp{slope: c.ceiling * c.capacity, base: c.unmanaged}
	}
	return ramps
}
