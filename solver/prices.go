package solver

import (
	"math"
	"slices"
)

// raisePrices shifts the prices of a saturated part, which are determined up to
// a constant only, to the lowest level at which no load there is too cheap and
// no source of the parts after it would come in.
func (in *instance) raisePrices(p component, after []component, out *answer) {
	in.updateWorth(out)
	headrooms := in.headrooms(p)
	shift := math.Inf(-1)
	for _, l := range p.localities {
		headroom := headrooms[l]
		if headroom == 0 {
			continue
		}
		shift = math.Max(shift, in.curves[l].slope(headroom)-out.prices[l])
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

// closedPrices prices localities without headroom (raised ceilings may leave a
// sliver), where nothing can land: at the lowest price at which no source would
// want to.
func (in *instance) closedPrices(out *answer) {
	in.updateWorth(out)
	for l := range in.localities {
		c := &in.curves[l]
		if c.headroom(in.scale[l]) > 2*raiseSlack*in.scale[l]*c.ceiling*c.capacity {
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

// variabilityPrices returns the prices at an optimum of an approximation.
func (pp *componentProgram) variabilityPrices(best optimum) ([]float64, *VariabilityPrices) {
	in, prog := pp.in, pp.prog
	prices := make([]float64, in.localities)
	out := &VariabilityPrices{High: make([]float64, in.localities), Low: make([]float64, in.localities), Lean: make([][]float64, in.sources)}
	for s := range out.Lean {
		out.Lean[s] = make([]float64, in.localities)
	}
	reached := make([]bool, in.localities)
	load, deviation := prog.loads(best.flow), prog.deviations(best.flow)
	for j, l := range pp.localities {
		c := &in.curves[l]
		reached[l] = true
		out.High[l], out.Low[l] = c.halves(load[j], deviation[j])
		prices[l] = (out.High[l] + out.Low[l]) / 2
		if load[j] >= freeShare*prog.headroom[j] {
			prices[l] = math.Max(prices[l], best.prices[j])
		}
		for i, s := range pp.component.sources {
			if deviation[j] > 0 {
				out.Lean[s][l] = prog.variability[i] * best.flow[i*prog.localities+j] / deviation[j]
			}
		}
	}
	for l := range prices {
		if !reached[l] {
			prices[l] = in.curves[l].slope(0)
			out.High[l], out.Low[l] = prices[l], prices[l]
		}
	}
	in.closedVariable(prices, out, reached)
	return prices, out
}

// closedVariable is closedPrices for variable demand.
func (in *instance) closedVariable(prices []float64, variability *VariabilityPrices, reached []bool) {
	for s := range in.sources {
		worth := math.Inf(1)
		for l, ok := range reached {
			if ok && in.open[s*in.localities+l] {
				worth = math.Min(worth, in.cost[s*in.localities+l]+prices[l]+variability.of(s, l, in.service.Variability[s]))
			}
		}
		for l, ok := range reached {
			if allowed := in.service.Allowed == nil || in.service.Allowed[s][l]; !ok && allowed && !math.IsInf(worth, 1) && in.served[s] > 0 {
				prices[l] = math.Max(prices[l], worth-in.cost[s*in.localities+l])
			}
		}
	}
}

// of returns what the variability of a source adds to the price of a locality, ms.
func (w *VariabilityPrices) of(source, locality int, variability float64) float64 {
	return (w.High[locality] - w.Low[locality]) / 2 * w.Lean[source][locality] * variability
}

// fits reports whether prices of an earlier solution are those of such a service,
// and worth a try.
func (w *VariabilityPrices) fits(sources, localities int) bool {
	if !w.shaped(sources, localities) || !plausible(w.High) || !plausible(w.Low) {
		return false
	}
	for _, row := range w.Lean {
		for _, v := range row {
			if !(v >= 0 && v <= 1) {
				return false
			}
		}
	}
	return true
}

// shaped reports whether the slices have the lengths of such a service.
func (w *VariabilityPrices) shaped(sources, localities int) bool {
	if w == nil || len(w.High) != localities || len(w.Low) != localities || len(w.Lean) != sources {
		return false
	}
	return !slices.ContainsFunc(w.Lean, func(row []float64) bool { return len(row) != localities })
}

// variabilityBound is a lower bound on the cost of flows of variable demand, whatever
// the prices are. For each locality, with H >= L its prices in the two halves and mu
// what its price P is above their mean,
//
//	(f(y+D) + f(y-D))/2  >=  (H+L)/2 y + (H-L)/2 D - (gain(H) + gain(L))/2,   gain(p) = max p y - f(y)
//
// and D is at least sum_s lean_s variability_s x_s for any lean of length 1.
func (in *instance) variabilityBound(prices []float64, variability *VariabilityPrices) float64 {
	total, most := 0.0, 0.0
	ways := make([]float64, in.localities) // mean of the halves, plus mu
	for l := range in.localities {
		mean := (variability.High[l] + variability.Low[l]) / 2
		ways[l] = math.Max(mean, prices[l])
	}
	length := variability.lengths()
	for s, d := range in.served {
		most = math.Max(most, in.service.Variability[s])
		best := math.Inf(1)
		for l := range in.localities {
			if a := s*in.localities + l; in.open[a] {
				lean := math.Max(0, variability.of(s, l, in.service.Variability[s])) / length[l]
				best = math.Min(best, in.cost[a]+ways[l]+lean)
			}
		}
		if d > 0 {
			total += d * best
		}
	}
	for l := range in.curves {
		c := &in.curves[l]
		if c.capacity == 0 {
			continue
		}
		headroom := c.headroom(1)
		mean := (variability.High[l] + variability.Low[l]) / 2
		total -= (c.gain(variability.High[l], headroom*(1+most))+c.gain(variability.Low[l], headroom*(1+most)))/2 + (ways[l]-mean)*headroom
	}
	return total
}

// lengths are those of the vectors of Lean, 1 at least.
func (w *VariabilityPrices) lengths() []float64 {
	out := make([]float64, len(w.High))
	for _, row := range w.Lean {
		for l, v := range row {
			out[l] += v * v
		}
	}
	for l, v := range out {
		out[l] = math.Max(1, math.Sqrt(v))
	}
	return out
}

const (
	sharpenRounds = 4  // how often the worths are tried, at most
	sharpenSteps  = 30 // of a golden section
	sharpenFactor = 3  // by which a worth may change in a round
	leastSharper  = 1e-4
	leastUsed     = 1e-6 // part of a source's demand that counts as sent somewhere
)

// sharper looks for prices that prove more, around flows [s][l] that cost next to nothing
// too much. Near a capacity the slope of a curve grows so fast that the slopes at such
// flows may prove nothing. So prices are made from what a request/s of each source is
// worth: a locality is as dear as the sources that send there make it. The worths are
// varied, all together and each alone. What it returns proves at least as much as what it
// got.
func (in *instance) sharper(bound float64, prices []float64, variability *VariabilityPrices, flows []float64) (float64, []float64, *VariabilityPrices) {
	worth := make([]float64, in.sources)
	for s := range worth {
		worth[s] = math.Inf(1)
		for l := range in.localities {
			if in.open[s*in.localities+l] {
				worth[s] = math.Min(worth[s], in.cost[s*in.localities+l]+prices[l]+variability.of(s, l, in.service.Variability[s]))
			}
		}
	}
	try := func() float64 {
		made, at := in.pricesOf(worth, variability, flows)
		b := in.variabilityBound(made, at)
		if b > bound {
			bound, prices, variability = b, made, &VariabilityPrices{High: at.High, Low: at.Low, Lean: at.Lean}
		}
		return b
	}
	for range sharpenRounds {
		before := bound
		all := slices.Clone(worth)
		best := highest(1.0/sharpenFactor, sharpenFactor, func(by float64) float64 {
			for s := range worth {
				worth[s] = by * all[s]
			}
			return try()
		})
		for s := range worth {
			worth[s] = best * all[s]
		}
		for s, now := range worth {
			if in.served[s] <= 0 || math.IsInf(now, 1) {
				continue
			}
			worth[s] = now * highest(1.0/sharpenFactor, sharpenFactor, func(by float64) float64 {
				worth[s] = by * now
				return try()
			})
		}
		if bound-before <= leastSharper*math.Abs(bound) {
			break
		}
	}
	return bound, prices, variability
}

// pricesOf makes prices of worths: those of the low halves and the leans stay.
func (in *instance) pricesOf(worth []float64, variability *VariabilityPrices, flows []float64) ([]float64, *VariabilityPrices) {
	prices := make([]float64, in.localities)
	out := &VariabilityPrices{High: slices.Clone(variability.Low), Low: variability.Low, Lean: variability.Lean}
	for l := range prices {
		c := &in.curves[l]
		if c.capacity == 0 {
			continue
		}
		low, most, above := variability.Low[l], math.Max(variability.Low[l], c.slope(c.capacity)), 0.0
		for s, w := range worth {
			a := s*in.localities + l
			if flows[a] <= leastUsed*in.served[s] || math.IsInf(w, 1) {
				continue
			}
			lean := variability.Lean[s][l] * in.service.Variability[s]
			high := (w - in.cost[a] - low*(1-lean)/2) * 2 / (1 + lean)
			out.High[l] = math.Max(out.High[l], math.Min(high, most))
			above = math.Max(above, (high-most)*(1+lean)/2)
		}
		prices[l] = (out.High[l]+low)/2 + above
	}
	return prices, out
}

// highest is where a function that grows and then falls is largest, between two ends.
func highest(from, to float64, of func(float64) float64) float64 {
	const ratio = 0.6180339887498949
	a, b := to-ratio*(to-from), from+ratio*(to-from)
	fa, fb := of(a), of(b)
	for range sharpenSteps {
		if fa >= fb {
			to, b, fb = b, a, fa
			a = to - ratio*(to-from)
			fa = of(a)
		} else {
			from, a, fa = a, b, fb
			b = from + ratio*(to-from)
			fb = of(b)
		}
	}
	return (from + to) / 2
}
