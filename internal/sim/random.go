package sim

import (
	"math"
	"slices"
)

// What random numbers are for. They are drawn by what they are about, not one
// after the other, so that all policies of a scenario meet the same ones.
const (
	drawDemand = iota + 1
	drawPush
	drawReport
	drawUtilization
	drawStart
	drawEjection
	drawInterval
	drawGauge
)

// draw returns a number in [0, 1) that depends on nothing but its arguments:
// the output function of splitmix64 (G. L. Steele, D. Lea, C. H. Flood,
// "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014) over each.
func draw(seed uint64, keys ...uint64) float64 {
	h := mix64(seed + golden)
	for _, k := range keys {
		h = mix64(h ^ (k+1)*golden)
	}
	return float64(h>>11) / (1 << 53)
}

const golden = 0x9e3779b97f4a7c15

func mix64(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// normal returns a normally distributed number with mean 0 and variance 1, by
// the transformation of Box and Muller.
func normal(seed uint64, keys ...uint64) float64 {
	a := draw(seed, append(slices.Clip(keys), 0)...)
	b := draw(seed, append(slices.Clip(keys), 1)...)
	return math.Sqrt(-2*math.Log(1-a)) * math.Cos(2*math.Pi*b)
}
