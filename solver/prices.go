package solver

import "math"

// raisePrices shifts the prices of a saturated part, which are determined up to
// a constant only, to the lowest level at which no load there is too cheap and
// no source of the parts after it would come in.
func (in *instance) raisePrices(p part, after []part, out *answer) {
	in.updateWorth(out)
	rooms := in.rooms(p)
	shift := math.Inf(-1)
	for _, l := range p.localities {
		room := rooms[l]
		if room == 0 {
			continue
		}
		shift = math.Max(shift, in.curves[l].slope(room)-out.prices[l])
		for _, q := range after {
			for _, s := range q.sources {
				if a := s*in.localities + l; in.open[a] {
					shift = math.Max(shift, out.worth[s]-in.cost[a]-out.prices[l])
				}
			}
		}
	}
	if math.IsInf(shift, 0) {
		return
	}
	for _, l := range p.localities {
		out.prices[l] += shift
	}
}

// updateWorth sets what one more request/s of each source costs: the least of
// way and price over the localities where flow of its part may land.
func (in *instance) updateWorth(out *answer) {
	for s := range in.sources {
		out.worth[s] = math.Inf(1)
		for l := range in.localities {
			a := s*in.localities + l
			if out.flow[a] > 0 {
				out.worth[s] = math.Min(out.worth[s], in.cost[a]+out.prices[l])
			}
		}
	}
}

// closedPrices prices localities without room (raised ceilings may leave a
// sliver), where nothing can land: at the least price at which no source would
// want to.
func (in *instance) closedPrices(out *answer) {
	in.updateWorth(out)
	for l := range in.localities {
		c := &in.curves[l]
		if c.room(in.scale[l]) > 2*raiseSlack*in.scale[l]*c.ceiling*c.capacity {
			continue
		}
		price := c.slope(0)
		for s := range in.sources {
			allowed := in.service.Allowed == nil || in.service.Allowed[s][l]
			if allowed && !math.IsInf(out.worth[s], 1) {
				price = math.Max(price, out.worth[s]-in.cost[s*in.localities+l])
			}
		}
		out.prices[l] = price
	}
}
