package solver

import "math"

// Objective is the cost of flows x [s][l] in requests/s * ms:
//
//	sum_sl x_sl (w_sl + price_sl)  +  sum_l y_l t_l + Q_l(y_l + b_l),  y_l = sum_s x_sl
//
// If demand varies, a locality costs the mean of what y+D and y-D cost, with
// the standard deviation D_l = sqrt(sum_s (variability_s x_sl)^2). Divided by the demand
// the objective is the mean latency in ms where there is neither background nor
// price. Localities of capacity 0 count only the way to them.
func Objective(s Service, flows [][]float64) float64 {
	total := 0.0
	for l := range s.Localities {
		y, square := 0.0, 0.0
		for i := range flows {
			x := flows[i][l]
			y += x
			total += x * s.cost(i, l)
			if i < len(s.Variability) {
				square += s.Variability[i] * x * s.Variability[i] * x
			}
		}
		if s.Localities[l].Capacity > 0 {
			c := newCurve(s.Localities[l])
			total += c.meanValue(y, math.Sqrt(square))
		}
	}
	return total
}

// VariabilityBound is Bound for a service whose demand varies and fits beneath its
// ceilings, with what a solution tells beside its prices. The slices must have the
// lengths that those of a solution have.
func VariabilityBound(s Service, prices []float64, variability *VariabilityPrices) float64 {
	return newInstance(&s).variabilityBound(prices, variability)
}

// Bound is a number that no flows of s can cost less than, whatever the prices
// [l] are; good prices make it tight. It is the certificate of a solution, and
// needs no trust in how the prices came about:
//
//	sum_s d_s min_l (w_sl + price_sl + p_l)  -  sum_l max over feasible y of (p_l y - y t_l - Q_l(y + b_l))
//
// scale [l] are the factors by which ceilings are raised (nil = 1), shed [s] is
// the demand given up (nil = 0). Demand without an allowed locality doesn't count.
func Bound(s Service, prices, scale, shed []float64) float64 {
	total := 0.0
	for i, d := range s.Demand {
		best := math.Inf(1)
		for l := range s.Localities {
			if s.open(i, l) {
				best = math.Min(best, s.cost(i, l)+prices[l])
			}
		}
		if shed != nil {
			d -= shed[i]
		}
		if d > 0 && !math.IsInf(best, 1) {
			total += d * best
		}
	}
	for l := range s.Localities {
		if s.Localities[l].Capacity == 0 {
			continue
		}
		raise := 1.0
		if scale != nil {
			raise = scale[l]
		}
		c := newCurve(s.Localities[l])
		total -= c.gain(prices[l], c.headroom(raise))
	}
	return total
}

// cost is w + price.
func (s *Service) cost(source, locality int) float64 {
	c := s.Latency[source][locality]
	if s.Price != nil {
		c += s.Price[source][locality]
	}
	return c
}

// open tells whether a source may send to a locality.
func (s *Service) open(source, locality int) bool {
	return s.Localities[locality].Capacity > 0 && (s.Allowed == nil || s.Allowed[source][locality])
}
