//go:build !race

package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestQueueSettlesWhereTheFormulaSays: at a steady rate the mean stay is that of
// M/M/c by Sakasegawa, which is what the solver's cost assumes.
func TestQueueSettlesWhereTheFormulaSays(t *testing.T) {
	for _, servers := range []float64{0.5, 1, 4, 40} {
		for _, u := range []float64{0.01, 0.3, 0.8, 0.95} {
			for _, length := range []float64{0.01, 0.25, 5} {
				const capacity = 100.0
				var q queue
				for range int(2000 / length) {
					if lost := q.step(u*capacity, capacity, servers, 1e6, length); lost != 0 {
						t.Fatalf("c %v, u %v: %v lost", servers, u, lost)
					}
				}
				want := 1000*servers/capacity + 1000*math.Pow(u, math.Sqrt(2*(servers+1)))/(1-u)/(u*capacity)
				if got := q.stay(capacity, servers); math.Abs(got-want) > 1e-3*want {
					t.Errorf("c %v, u %v, steps of %v s: stay %v ms, want %v", servers, u, length, got, want)
				}
			}
		}
	}
}

// TestQueueGrowsBeyondCapacity: what exceeds capacity piles up, then times out,
// and drains afterwards.
func TestQueueGrowsBeyondCapacity(t *testing.T) {
	var q queue
	const capacity, servers, timeout, length = 100.0, 4.0, 2.0, 0.25
	for range 4 {
		if lost := q.step(150, capacity, servers, timeout, length); lost != 0 {
			t.Fatalf("%v lost within the first second", lost)
		}
	}
	if q.present < 50 || q.present > 60 {
		t.Errorf("%v present after one second of 50 requests/s too many", q.present)
	}
	lost := 0.0
	for range 100 {
		lost = q.step(150, capacity, servers, timeout, length)
	}
	if math.Abs(lost-1.0/3) > 0.01 {
		t.Errorf("%v of the requests time out, want a third", lost)
	}
	if stay := q.stay(capacity, servers); math.Abs(stay-1000*timeout) > 20 {
		t.Errorf("stay %v ms, want the timeout", stay)
	}
	for range 40 {
		if lost := q.step(50, capacity, servers, timeout, length); lost != 0 {
			t.Errorf("%v lost while it drains", lost)
		}
	}
	if q.present > 3 {
		t.Errorf("%v still present", q.present)
	}
}

func TestQueueWithoutRequests(t *testing.T) {
	var q queue
	for range 3 {
		q.step(0, 100, 4, 1, 0.25)
	}
	if q.present != 0 || q.stay(100, 4) != 40 {
		t.Errorf("%v present, stay %v ms", q.present, q.stay(100, 4))
	}
}

// TestExponentialQuantiles: over many steps the samples are the distribution.
func TestExponentialQuantiles(t *testing.T) {
	var h histogram
	for step := range uint64(1000) {
		for _, x := range exponentialAt(step) {
			h.add(10*x, 1)
		}
	}
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		want := -10 * math.Log(1-q)
		if got := h.quantile(q); math.Abs(got-want) > 0.03*want+0.1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// TestUtilizationOfAWorkerPool: what an endpoint reports is the work that began, each part
// of it less the longer ago it began, without what begins at this moment. The twin adds up all work again.
func TestUtilizationOfAWorkerPool(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := workerPool{serving: &Serving{Variation: 0.1}, free: make([]float64, 2), reports: true}
	var all []begun
	at := 0.0
	for range 2000 {
		at += rng.ExpFloat64() * 0.06 // of 0.1 s each, with two workers: 83%
		before := len(q.begun)
		q.serve(at, 0.1, 0, 0, 10, rng)
		all = append(all, q.begun[before:]...)
		want := 0.0
		for _, b := range all {
			if b.at < at {
				want += b.length / 2 / utilizationTime * math.Exp((b.at-at)/utilizationTime)
			}
		}
		if got := q.utilization(at); math.Abs(got-want) > 1e-9 {
			t.Fatalf("at %v: %v, want %v", at, got, want)
		}
	}
}
