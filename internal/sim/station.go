package sim

import (
	"math"
	"math/rand/v2"
)

// station is one endpoint, request by request: workers that take requests in the
// order of their arrival.
type station struct {
	serving *Serving
	free    []float64 // when each worker is free, seconds
	begin   []float64 // when those begin that wait, in order
}

// refusal is how long it takes to refuse a request, seconds.
const refusal = 0.0005

// serve takes a request at a moment (seconds) and tells when it ends, for the
// client, and whether it succeeds. mean is that of its service time.
func (q *station) serve(at, mean, slow, failing, timeout float64, rng *rand.Rand) (end float64, ok bool) {
	ok = failing <= 0 || rng.Float64() >= failing
	if slow >= timeout {
		return at + timeout, false
	}
	first := 0
	for i, f := range q.free {
		if f < q.free[first] {
			first = i
		}
	}
	start := max(at, q.free[first])
	if start > at {
		n := 0
		for n < len(q.begin) && q.begin[n] <= at {
			n++
		}
		q.begin = q.begin[n:]
		if q.serving.Waiting > 0 && len(q.begin) >= q.serving.Waiting {
			return at + refusal, false
		}
		if start-at >= timeout && !q.serving.Wastes {
			return at + timeout, false
		}
		q.begin = append(q.begin, start)
	}
	q.free[first] = start + mean*varying(rng, q.serving.Variation)
	if end = q.free[first] + slow; end-at > timeout {
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
