package resource

import "math"

// maxWeight2017 is the largest weight that clients of 2017 take.
const maxWeight2017 = 128

// rescale brings weights >= 1 into the range 1 to 128 with the least distortion:
// of all scales, the one under which the share that is off the most is off the
// least. With n weights no share is off by more than (n+1)/128 of the whole; in
// practice it is a tenth of that, since the errors of rounding cancel out.
// Weights that are in the range already stay.
func rescale(weights []uint32) []uint32 {
	var largest uint32
	var sum float64
	for _, w := range weights {
		largest = max(largest, w)
		sum += float64(w)
	}
	if largest <= maxWeight2017 {
		return weights
	}
	out := make([]uint32, len(weights))
	best, least := uint32(maxWeight2017), math.Inf(1)
	for top := uint32(maxWeight2017); top >= 1; top-- {
		if off := distortion(weights, scaled(weights, largest, top, out), sum); off < least {
			best, least = top, off
		}
	}
	return scaled(weights, largest, best, out)
}

// scaled gives the weights when the largest becomes top.
func scaled(weights []uint32, largest, top uint32, out []uint32) []uint32 {
	for i, w := range weights {
		out[i] = uint32(max(1, math.Round(float64(w)*float64(top)/float64(largest))))
	}
	return out
}

// distortion is how far the share is off that is off the most, as a fraction of
// the whole.
func distortion(before, after []uint32, sum float64) float64 {
	var total, worst float64
	for _, w := range after {
		total += float64(w)
	}
	for i, w := range after {
		worst = max(worst, math.Abs(float64(w)/total-float64(before[i])/sum))
	}
	return worst
}
