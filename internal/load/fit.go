package load

import "math"

// Fit is a weighted least-squares line over the rate that forgets: the sums, and the line. Its
// quantity is utilization, or a limited quantity as a fraction of its limit.
type Fit struct {
	W  float64 `json:"w"`  // of the weights
	W2 float64 `json:"w2"` // of their squares
	X  float64 `json:"x"`  // rate, requests/s per unit
	Y  float64 `json:"y"`  // the quantity
	XX float64 `json:"xx"`
	XY float64 `json:"xy"`
	YY float64 `json:"yy"`

	Offset float64 `json:"offset"` // without load
	Slope  float64 `json:"slope"`  // per request/s
	Sigma  float64 `json:"sigma"`  // standard deviation of the residuals
}

func (f *Fit) add(x, y float64) {
	const keep = 1 - 1.0/memoryWindows
	f.W = f.W*keep + 1
	f.W2 = f.W2*keep*keep + 1
	f.X = f.X*keep + x
	f.Y = f.Y*keep + y
	f.XX = f.XX*keep + x*x
	f.XY = f.XY*keep + x*y
	f.YY = f.YY*keep + y*y
}

func (f *Fit) at(x float64) float64 { return f.Offset + f.Slope*x }

// scale gives all that was seen in another unit.
func (f *Fit) scale(ratio float64) {
	f.Y, f.XY, f.YY = f.Y*ratio, f.XY*ratio, f.YY*ratio*ratio
	f.Offset, f.Slope, f.Sigma = f.Offset*ratio, f.Slope*ratio, f.Sigma*ratio
}

// rescale lets all that was seen have been seen with the quantity times ratio,
// and count for a quarter.
func (f *Fit) rescale(ratio float64) {
	const left = 0.25
	f.W, f.X, f.XX = f.W*left, f.X*left, f.XX*left
	f.Y, f.XY, f.YY = f.Y*left, f.XY*left, f.YY*left
	f.W2 *= left // fewer, not lighter: the effective number falls to a quarter, too
	f.scale(ratio)
}

// solve draws the line and returns the rate at which it reaches 1, with the interval of that rate
// (inverse prediction from a regression: two standard errors). The line goes through the origin
// unless the data clearly say otherwise. chance is the variance of the rate, per request/s, from
// counting alone: clients at a constant rate show that much.
func (f *Fit) solve(chance float64, rules lineRules) (state CapacityState, capacity, low, high float64) {
	n := f.W * f.W / f.W2
	mx, my := f.X/f.W, f.Y/f.W
	vx, vy, cxy := f.XX/f.W-mx*mx, f.YY/f.W-my*my, f.XY/f.W-mx*my
	switch {
	case n < fewWindows:
		return CapacityFew, 0, 0, 0
	case my < rules.leastMean:
		return CapacityIdle, 0, 0, 0
	case vx-chance*mx*(1+6/math.Sqrt(n)) <= leastSpread*leastSpread*mx*mx: // four standard errors of a variance; nor does a rate of 0 vary
		return CapacityConstant, 0, 0, 0
	}
	slope := cxy / vx
	offset := my - slope*mx
	s2 := max(0, vy-slope*cxy) * n / (n - 2)
	if slope <= 2*math.Sqrt(s2/(n*vx)) {
		return CapacityPoor, 0, 0, 0
	}
	spread := s2 * (1/n + mx*mx/(n*vx)) // variance of the offset
	var se float64
	free := (1 - offset) / slope
	low, high = free, free // if there is a little offset after all
	certain := offset*offset >= 9*spread && math.Abs(offset) >= littleOffset
	if offset < 0 && certain && !rules.bent {
		return CapacityPoor, 0, 0, 0 // it grows faster than the rate
	}
	if !certain {
		offset, slope = 0, f.XY/f.XX
		s2 = max(0, (f.YY-slope*f.XY)/f.W) * n / (n - 1)
		capacity = 1 / slope
		se = math.Sqrt(s2/(n*f.XX/f.W)) / slope * capacity
	} else {
		capacity = free
		se = math.Sqrt(s2*(1/n+(capacity-mx)*(capacity-mx)/(n*vx))) / slope
	}
	if offset > rules.mostOffset || math.Sqrt(s2) > mostResidual*my || 2*se > mostInterval*capacity {
		return CapacityPoor, 0, 0, 0
	}
	f.Offset, f.Slope, f.Sigma = offset, slope, math.Sqrt(s2)
	return CapacityLearned, capacity, max(0, min(low, capacity-2*se)), max(high, capacity+2*se)
}

func (f *Fit) valid() bool {
	for _, v := range [...]float64{f.W, f.W2, f.X, f.Y, f.XX, f.XY, f.YY, max(f.Offset, -f.Offset), f.Slope, f.Sigma} {
		if !(v >= 0 && v < 1e18) {
			return false
		}
	}
	return f.W == 0 || f.W2 > 0
}
