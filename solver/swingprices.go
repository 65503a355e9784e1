package solver

import "math"

// swingPrices are the prices that go with an optimum of an approximation.
func (in *instance) swingPrices(p part, localities []int, prog *program, best optimum) ([]float64, *SwingPrices) {
	prices := make([]float64, in.localities)
	out := &SwingPrices{High: make([]float64, in.localities), Low: make([]float64, in.localities), Lean: make([][]float64, in.sources)}
	for s := range out.Lean {
		out.Lean[s] = make([]float64, in.localities)
	}
	reached := make([]bool, in.localities)
	load, deviation := prog.loads(best.flow), prog.deviations(best.flow)
	for j, l := range localities {
		c := &in.curves[l]
		reached[l] = true
		out.High[l], out.Low[l] = c.halves(load[j], deviation[j])
		prices[l] = (out.High[l] + out.Low[l]) / 2
		if load[j] >= freeShare*prog.room[j] {
			prices[l] = math.Max(prices[l], best.prices[j])
		}
		for i, s := range p.sources {
			if deviation[j] > 0 {
				out.Lean[s][l] = prog.swing[i] * best.flow[i*prog.localities+j] / deviation[j]
			}
		}
	}
	for l := range prices {
		if !reached[l] {
			prices[l] = in.curves[l].slope(0)
			out.High[l], out.Low[l] = prices[l], prices[l]
		}
	}
	in.closedSwung(prices, out, reached)
	return prices, out
}

// closedSwung is closedPrices where demand swings.
func (in *instance) closedSwung(prices []float64, swing *SwingPrices, reached []bool) {
	for s := range in.sources {
		worth := math.Inf(1)
		for l, ok := range reached {
			if ok && in.open[s*in.localities+l] {
				worth = math.Min(worth, in.cost[s*in.localities+l]+prices[l]+swing.of(s, l, in.service.Swing[s]))
			}
		}
		for l, ok := range reached {
			if allowed := in.service.Allowed == nil || in.service.Allowed[s][l]; !ok && allowed && !math.IsInf(worth, 1) && in.served[s] > 0 {
				prices[l] = math.Max(prices[l], worth-in.cost[s*in.localities+l])
			}
		}
	}
}

// of is what the swing of a source adds to the price of a locality, ms.
func (w *SwingPrices) of(source, locality int, swing float64) float64 {
	return (w.High[locality] - w.Low[locality]) / 2 * w.Lean[source][locality] * swing
}

// fits tells whether prices of an earlier solution are those of such a service,
// and worth a try.
func (w *SwingPrices) fits(sources, localities int) bool {
	if w == nil || len(w.High) != localities || len(w.Low) != localities || len(w.Lean) != sources || !plausible(w.High) || !plausible(w.Low) {
		return false
	}
	for _, row := range w.Lean {
		if len(row) != localities {
			return false
		}
		for _, v := range row {
			if !(v >= 0 && v <= 1) {
				return false
			}
		}
	}
	return true
}

// swungBound is what no flows can cost less than while demand swings, whatever
// the prices are. For each locality, with H >= L its prices in the two halves and mu
// what its price P is above their mean,
//
//	(f(y+D) + f(y-D))/2  >=  (H+L)/2 y + (H-L)/2 D - (gain(H) + gain(L))/2,   gain(p) = max p y - f(y)
//
// and D is at least sum_s lean_s swing_s x_s for any lean of length 1.
func (in *instance) swungBound(prices []float64, swing *SwingPrices) float64 {
	total, most := 0.0, 0.0
	ways := make([]float64, in.localities) // mean of the halves, plus mu
	for l := range in.localities {
		mean := (swing.High[l] + swing.Low[l]) / 2
		ways[l] = math.Max(mean, prices[l])
	}
	length := swing.lengths()
	for s, d := range in.served {
		most = math.Max(most, in.service.Swing[s])
		best := math.Inf(1)
		for l := range in.localities {
			if a := s*in.localities + l; in.open[a] {
				lean := math.Max(0, swing.of(s, l, in.service.Swing[s])) / length[l]
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
		room := c.room(1)
		mean := (swing.High[l] + swing.Low[l]) / 2
		total -= (c.gain(swing.High[l], room*(1+most))+c.gain(swing.Low[l], room*(1+most)))/2 + (ways[l]-mean)*room
	}
	return total
}

// lengths are those of the vectors of Lean, 1 at least.
func (w *SwingPrices) lengths() []float64 {
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
