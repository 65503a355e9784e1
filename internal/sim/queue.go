package sim

import (
	"math"
	"math/rand/v2"
)

// queue is one endpoint as rates see it. Its only state is the mean number of
// requests in it. At a steady rate that number is what the solver's cost
// assumes for M/M/c (Sakasegawa's approximation):
//
//	X(u) = c u + u^sqrt(2(c+1)) / (1-u)
//
// In between, requests come at the rate offered and leave at the rate K u, with
// u such that X(u) is the number present: the pointwise stationary fluid flow
// approximation (W. Wang, D. Tipper, S. Banerjee, "A simple approximation for
// modeling nonstationary queues", INFOCOM 1996). Beyond u = 1 the number just
// grows, until requests would stay for longer than the timeout.
type queue struct {
	present float64 // requests
	busy    float64 // u, in [0, 1)

	// What the last step was made from: the same again changes nothing once the
	// number stands still.
	rate, capacity float64
	still          bool
}

// nobody is how many requests count as none.
const nobody = 1e-12

// stillness is the relative change per step below which a queue stands still.
const stillness = 1e-9

// step lets requests come at a rate (requests/s) for a while (s) and returns the
// fraction of them that times out. capacity is in requests/s, servers is c, and
// timeout is in s.
func (q *queue) step(rate, capacity, servers, timeout, length float64) (lost float64) {
	if q.still && rate == q.rate && capacity == q.capacity {
		return 0
	}
	before := q.present
	q.rate, q.capacity = rate, capacity
	q.busy = utilizationOf(before+rate*length, servers, capacity*length)
	q.present = before + (rate-capacity*q.busy)*length
	if q.present < 0 || q.busy == 0 {
		q.present = presentAt(q.busy, servers)
	}
	if most := capacity * timeout; q.present > most {
		lost = min(1, (q.present-most)/(rate*length))
		q.present = most
	}
	q.still = lost == 0 && math.Abs(q.present-before) <= stillness*max(q.present, 1e-6)
	return lost
}

// stay is the mean time at the endpoint, ms, of requests that come now; none
// present means the time of service alone.
func (q *queue) stay(capacity, servers float64) float64 {
	if q.busy < 1e-9 || capacity <= 0 {
		if capacity <= 0 {
			return 0
		}
		return 1000 * servers / capacity
	}
	return 1000 * q.present / (capacity * q.busy)
}

func (q *queue) clear() { *q = queue{} }

func presentAt(u, servers float64) float64 {
	return servers*u + math.Pow(u, math.Sqrt(2*(servers+1)))/(1-u)
}

// utilizationOf solves X(u) + drain u = sum for u in [0, 1): one implicit step
// of Euler's method, which is stable however short the queue's own times are.
// The left side is convex and grows, so Newton's method falls onto the root
// from above.
func utilizationOf(sum, servers, drain float64) float64 {
	if sum < nobody {
		return 0
	}
	a := math.Sqrt(2 * (servers + 1))
	linear := servers + drain
	u := 1 - 1/(2+2*sum)
	if linear > 0 && sum/linear < u {
		u = sum / linear
	}
	for range 60 {
		p := math.Pow(u, a) / (1 - u)
		f := p + linear*u - sum
		slope := p*(a/u+1/(1-u)) + linear
		next := u - f/slope
		if next <= 0 {
			next = u / 2
		}
		if math.Abs(next-u) <= 1e-13 {
			return next
		}
		u = min(next, 1-1e-12)
	}
	return u
}

// workerPool is one endpoint, request by request: workers that take requests in the
// order of their arrival.
type workerPool struct {
	serving *Serving
	free    []float64 // when each worker is free, seconds
	begin   []float64 // when those begin that wait, in order

	// What it reports of its utilization.
	reports bool
	begun   []begun // not yet counted, in order
	work    float64 // begun recently, as a part of what the workers can do
	worked  float64 // seconds, when work was brought up to date
}

// begun is work that begins at a moment, seconds of one worker.
type begun struct{ at, length float64 }

// utilizationTime is the time constant of the utilization that endpoints report, seconds.
const utilizationTime = 1

// utilization returns the work that began as a part of what the workers can do, about
// the mean of the last utilizationTime. A worker that is done answers before it begins with
// the next request, so what begins at that moment is not in it: under load, 1 - utilization
// is a little above 0.
func (p *workerPool) utilization(at float64) float64 {
	for len(p.begun) > 0 && p.begun[0].at < at {
		p.decay(p.begun[0].at)
		p.work += p.begun[0].length / utilizationTime / float64(len(p.free))
		p.begun = p.begun[1:]
	}
	p.decay(at)
	return p.work
}

func (p *workerPool) decay(to float64) {
	if to > p.worked {
		p.work *= math.Exp((p.worked - to) / utilizationTime)
		p.worked = to
	}
}

// refusal is how long it takes to refuse a request, seconds.
const refusal = 0.0005

// serve takes a request at a moment (seconds) and tells when it ends, for the
// client, and whether it succeeds. mean is that of its service time.
func (p *workerPool) serve(at, mean, slow, failing, timeout float64, rng *rand.Rand) (end float64, ok bool) {
	ok = failing <= 0 || rng.Float64() >= failing
	if slow >= timeout {
		return at + timeout, false
	}
	first := 0
	for i, f := range p.free {
		if f < p.free[first] {
			first = i
		}
	}
	start := max(at, p.free[first])
	if start > at {
		n := 0
		for n < len(p.begin) && p.begin[n] <= at {
			n++
		}
		p.begin = p.begin[n:]
		if p.serving.Waiting > 0 && len(p.begin) >= p.serving.Waiting {
			return at + refusal, false
		}
		if start-at >= timeout && !p.serving.Wastes {
			return at + timeout, false
		}
		p.begin = append(p.begin, start)
	}
	length := mean * varying(rng, p.serving.Variation)
	p.free[first] = start + length
	if p.reports {
		p.begun = append(p.begun, begun{start, length})
	}
	if end = p.free[first] + slow; end-at > timeout {
		return at + timeout, false
	}
	return end, ok
}

// varying draws from a distribution with mean 1 and a squared coefficient of
// variation (0 = 1): a sum of exponential ones, or a mix of two.
func varying(rng *rand.Rand, cv2 float64) float64 {
	switch {
	case cv2 <= 0 || cv2 == 1:
		return rng.ExpFloat64()
	case cv2 < 1:
		n := max(1, min(100, int(math.Round(1/cv2))))
		sum := 0.0
		for range n {
			sum += rng.ExpFloat64()
		}
		return sum / float64(n)
	}
	p := (1 + math.Sqrt((cv2-1)/(cv2+1))) / 2
	if rng.Float64() >= p {
		p = 1 - p
	}
	return rng.ExpFloat64() / (2 * p)
}
