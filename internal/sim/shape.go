package sim

import (
	"math"
	"time"
)

// Shape is a quantity over time. It must be a function of its argument alone.
type Shape func(at time.Duration) float64

// Constant is the same at all times.
func Constant(v float64) Shape { return func(time.Duration) float64 { return v } }

// Times multiplies shapes.
func Times(shapes ...Shape) Shape {
	return func(at time.Duration) float64 {
		v := 1.0
		for _, s := range shapes {
			v *= s(at)
		}
		return v
	}
}

// Step is 1 before a moment and factor from then on.
func Step(when time.Duration, factor float64) Shape {
	return func(at time.Duration) float64 {
		if at < when {
			return 1
		}
		return factor
	}
}

// Flash is factor from a moment on for a while, else 1.
func Flash(when, length time.Duration, factor float64) Shape {
	return func(at time.Duration) float64 {
		if at < when || at >= when+length {
			return 1
		}
		return factor
	}
}

// Square alternates between high, for the first half of each period, and low. A
// period begins at start.
func Square(period, start time.Duration, low, high float64) Shape {
	return func(at time.Duration) float64 {
		if ((at-start)%period+period)%period < period/2 {
			return high
		}
		return low
	}
}

// Wave varies between 1-amplitude and 1+amplitude, with its first peak at a moment.
func Wave(period, peak time.Duration, amplitude float64) Shape {
	return func(at time.Duration) float64 {
		return 1 + amplitude*math.Cos(2*math.Pi*float64(at-peak)/float64(period))
	}
}

// Ramp goes in a straight line from 1 at one moment to factor at another.
func Ramp(from, to time.Duration, factor float64) Shape {
	return func(at time.Duration) float64 {
		switch {
		case at <= from:
			return 1
		case at >= to:
			return factor
		default:
			return 1 + (factor-1)*float64(at-from)/float64(to-from)
		}
	}
}
