package solver

import "math"

// VariabilityPrices completes the prices of a service whose demand varies faster than
// flows can follow. The solver then takes the load of a locality as y + D half of the
// time and y - D the other half, where D is the standard deviation
//
//	D_l = sqrt( sum_s (swing_s x_sl)^2 )
//
// that follows from the variability of its sources. So a variable source costs most
// in a locality where it already causes much of the deviation.
type VariabilityPrices struct {
	High, Low []float64 // [l] what one more request/s costs in either half, ms
	// Lean is the part of each source in the deviation, [s][l]: the squares of a
	// locality add up to 1 at most. One more request/s of source s costs
	// Prices[l] + (High[l]-Low[l])/2 Lean[s][l] Variability[s] in locality l.
	Lean [][]float64
}

// meanValue returns the mean cost of a load that is above y by the deviation half of the
// time, and below it the other half.
func (c *curve) meanValue(y, deviation float64) float64 {
	if deviation == 0 {
		return c.value(y)
	}
	return (c.value(y+deviation) + c.value(math.Max(0, y-deviation))) / 2
}

// halves returns the slopes at the two loads y+deviation and y-deviation.
func (c *curve) halves(y, deviation float64) (high, low float64) {
	return c.slope(y + deviation), c.slope(math.Max(0, y-deviation))
}

// steady returns the curve without its deviation.
func (c *curve) steady() curve {
	out := *c
	out.deviation = 0
	return out
}

// meanSlopes returns the derivatives of meanValue at the curve's own deviation.
func (c *curve) meanSlopes(y float64) (first, second float64) {
	steady := c.steady()
	first, second = steady.slopes(y + c.deviation)
	if y > c.deviation {
		f, s := steady.slopes(y - c.deviation)
		return (first + f) / 2, (second + s) / 2
	}
	return (first + steady.slope(0)) / 2, second / 2
}
