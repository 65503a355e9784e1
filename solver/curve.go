package solver

import "math"

// kneeUtilization is where the queue cost turns into its tangent: beyond it the
// formula explodes towards 1 and says nothing about a real fleet any more.
const kneeUtilization = 0.98

// curve is the cost of one locality as a function of its load y:
//
//	f(y) = y t + Q(y + b),  t = 1000 n / K  ms,
//	Q    = 1000 r u^sqrt(2(n/r+1)) / (1-u),  u = (y+b)/K
//
// Q is rate times mean waiting time in ms of r independent M/M/(n/r) queues
// by the approximation of H. Sakasegawa, "An approximation formula
// Lq = alpha rho^beta / (1-rho)", Annals of the Institute of Statistical
// Mathematics 29 (1977). It is convex; above u = 0.98 it goes on as its tangent.
type curve struct {
	capacity  float64 // K, 0 = removed
	service   float64 // t, ms
	unmanaged float64 // b
	ceiling   float64
	queues    float64 // 1000 r; 0 = no queue term
	exponent  float64 // sqrt(2(n/r+1))
	kneeCost  float64 // Q at the knee
	kneeSlope float64 // dQ/du at the knee
	deviation float64 // what counts is the mean of loads that are so much higher and lower, requests/s
}

func newCurve(l Locality) curve {
	c := curve{capacity: l.Capacity, unmanaged: l.Unmanaged, ceiling: l.Ceiling}
	if c.ceiling == 0 {
		c.ceiling = defaultCeiling
	}
	if l.Capacity == 0 || l.Servers == 0 {
		return c
	}
	r := l.Queues
	if r == 0 {
		r = 1
	}
	c.service = 1000 * l.Servers / l.Capacity
	c.queues = 1000 * r
	c.exponent = math.Sqrt(2 * (l.Servers/r + 1))
	power := math.Pow(kneeUtilization, c.exponent)
	c.kneeCost = c.queues * power / (1 - kneeUtilization)
	c.kneeSlope = c.kneeCost * (c.exponent/kneeUtilization + 1/(1-kneeUtilization))
	return c
}

// headroom is how much obedient load fits under the ceiling times scale.
func (c *curve) headroom(scale float64) float64 {
	return math.Max(0, scale*c.ceiling*c.capacity-c.unmanaged)
}

// knee is the load where the queue cost becomes straight; negative if
// unmanaged load alone is beyond it, and infinite without a queue term, and where what
// counts is the mean of two loads.
func (c *curve) knee() float64 {
	if c.queues == 0 || c.deviation > 0 {
		return math.Inf(1)
	}
	return kneeUtilization*c.capacity - c.unmanaged
}

// value is f(y).
func (c *curve) value(y float64) float64 {
	if c.deviation > 0 {
		steady := c.steady()
		return steady.meanValue(y, c.deviation)
	}
	if c.queues == 0 {
		return y * c.service
	}
	u := (y + c.unmanaged) / c.capacity
	if u > kneeUtilization {
		return y*c.service + c.kneeCost + c.kneeSlope*(u-kneeUtilization)
	}
	return y*c.service + c.queues*math.Pow(u, c.exponent)/(1-u)
}

// slope is f'(y): what one more request/s costs all requests together, in ms.
func (c *curve) slope(y float64) float64 {
	s, _ := c.slopes(y)
	return s
}

// slopes is f'(y) and f”(y).
func (c *curve) slopes(y float64) (first, second float64) {
	if c.deviation > 0 {
		return c.meanSlopes(y)
	}
	if c.queues == 0 {
		return c.service, 0
	}
	u := (y + c.unmanaged) / c.capacity
	if u > kneeUtilization {
		return c.service + c.kneeSlope/c.capacity, 0
	}
	if u < 1e-12 {
		// f'' may be infinite at 0 (exponent < 2); a finite one serves.
		u = 1e-12
	}
	q := c.queues * math.Pow(u, c.exponent) / (1 - u)
	a, b := c.exponent/u, 1/(1-u)
	first = q * (a + b)
	second = q * ((a+b)*(a+b) - a/u + b*b)
	return c.service + first/c.capacity, second / (c.capacity * c.capacity)
}

// gainSlack is by how much gain may overstate, as a fraction of price times load.
const gainSlack = 1e-13

// gain is an upper bound, tight to rounding, of the largest p y - f(y) over
// 0 <= y <= headroom. f is convex, so a bracket around the maximum follows from its
// slope, and the tangent at any load in it lies above what is between there and
// the ends of the bracket. Newton's method on the slope chooses where to look;
// where it leaves the bracket, the middle does.
func (c *curve) gain(price, headroom float64) float64 {
	if price <= c.slope(0) {
		return -c.value(0)
	}
	if price >= c.slope(headroom) {
		return price*headroom - c.value(headroom)
	}
	lo, hi, y, above := 0.0, headroom, headroom, 0.0
	for range 100 {
		slope, bend := c.slopes(y)
		if slope < price {
			lo, above = y, (price-slope)*(hi-y)
		} else {
			hi, above = y, (slope-price)*(y-lo)
		}
		if above <= gainSlack*price*y {
			break
		}
		next := y + (price-slope)/bend
		if !(next > lo && next < hi) {
			next = lo + (hi-lo)/2
		}
		if next <= lo || next >= hi {
			break
		}
		y = next
	}
	return price*y - c.value(y) + above
}

// VariabilityPrices completes the prices of a service whose demand varies faster than
// flows can follow. The solver then takes the load of a locality as y + D half of the
// time and y - D the other half, where D is the standard deviation
//
//	D_l = sqrt( sum_s (variability_s x_sl)^2 )
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
