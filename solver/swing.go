package solver

import "math"

// SwingPrices completes the prices of a service whose demand swings faster than
// flows can follow. The load of a locality is then taken to be y + D half of the
// time and y - D the other half, where D is the standard deviation
//
//	D_l = sqrt( sum_s (swing_s x_sl)^2 )
//
// that follows from the swings of its sources. So a source that swings is worst
// put where it already is much of what swings.
type SwingPrices struct {
	High, Low []float64 // [l] what one more request/s costs in either half, ms
	// Lean is the part of each source in the deviation, [s][l]: the squares of a
	// locality add up to 1 at most. One more request/s of source s costs
	// Prices[l] + (High[l]-Low[l])/2 Lean[s][l] Swing[s] in locality l.
	Lean [][]float64
}

// swung is the mean cost at a load that deviates half of the time up and half of
// the time down.
func (c *curve) swung(y, deviation float64) float64 {
	if deviation == 0 {
		return c.value(y)
	}
	return (c.value(y+deviation) + c.value(math.Max(0, y-deviation))) / 2
}

// halves are the slopes at the two loads that a deviation makes of one.
func (c *curve) halves(y, deviation float64) (high, low float64) {
	return c.slope(y + deviation), c.slope(math.Max(0, y-deviation))
}

// steady is the curve of a load that does not deviate.
func (c *curve) steady() curve {
	out := *c
	out.deviation = 0
	return out
}

// swungSlopes are the derivatives of swung with the deviation as it is.
func (c *curve) swungSlopes(y float64) (first, second float64) {
	steady := c.steady()
	first, second = steady.slopes(y + c.deviation)
	if y > c.deviation {
		f, s := steady.slopes(y - c.deviation)
		return (first + f) / 2, (second + s) / 2
	}
	return (first + steady.slope(0)) / 2, second / 2
}
