package solver

import "math"

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
		ramps[l].slope = in.curves[l].room(1)
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

// fits tells whether nothing was shed.
func (in *instance) fits() bool {
	for _, shed := range in.shed {
		if shed > 0 {
			return false
		}
	}
	return true
}

// excessOf is the demand of a part beyond its ceilings.
func (in *instance) excessOf(p part) float64 {
	if !p.saturated || p.factor <= 1+fullSlack {
		return 0
	}
	room := 0.0
	for _, l := range p.localities {
		room += in.curves[l].room(1)
	}
	return math.Max(0, sumOf(in.served, p.sources)-room)
}

// ceilings are the rooms as functions of the factor on the ceilings.
func (in *instance) ceilings() []ramp {
	ramps := make([]ramp, in.localities)
	for l := range ramps {
		c := &in.curves[l]
		ramps[l] = ramp{slope: c.ceiling * c.capacity, base: c.background}
	}
	return ramps
}
