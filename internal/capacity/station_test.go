package capacity_test

import (
	"math"
	"math/rand/v2"

	"github.com/isobar-xds/isobar/internal/capacity"
)

// station is a locality, request by request: pods that clients reach in turn.
type station struct {
	pods, workers int     // workers of each pod
	service       float64 // mean service time, seconds
	cv2           float64 // squared coefficient of variation of the service time
	timeout       float64 // after which a client gives up, seconds
	limit         int     // requests that wait in a pod, above which it refuses; 0 = none
	abandons      bool    // a request that was given up is not worked on
	failing       float64 // part that fails whatever the load
	clients       int
	window        float64 // seconds

	rng  *rand.Rand
	free [][]float64 // when each worker of a pod is free
	wait [][]float64 // when those that wait in a pod begin
	now  float64
	next []int // pod that each client turns to next

	gauges []int          // requests of each client in progress at its next reports
	ended  [64][2]float64 // requests that fail and succeed in this window and the next ones
}

func (s *station) capacity() float64 { return float64(s.pods*s.workers) / s.service }

func (s *station) start(seed uint64) {
	s.rng = rand.New(rand.NewPCG(seed, 1))
	s.free, s.wait = make([][]float64, s.pods), make([][]float64, s.pods)
	for i := range s.free {
		s.free[i] = make([]float64, s.workers)
	}
	s.next = make([]int, s.clients)
	for i := range s.next {
		s.next[i] = s.rng.IntN(s.pods)
	}
}

// takes draws a service time: a sum of exponential ones, or a mix of two.
func (s *station) takes() float64 {
	switch {
	case s.cv2 < 1:
		n := max(1, int(math.Round(1/s.cv2)))
		sum := 0.0
		for range n {
			sum += s.rng.ExpFloat64()
		}
		return s.service * sum / float64(n)
	case s.cv2 == 1:
		return s.service * s.rng.ExpFloat64()
	}
	p := (1 + math.Sqrt((s.cv2-1)/(s.cv2+1))) / 2
	if s.rng.Float64() < p {
		return s.service * s.rng.ExpFloat64() / (2 * p)
	}
	return s.service * s.rng.ExpFloat64() / (2 * (1 - p))
}

// serve takes a request: when it leaves, and whether it succeeds.
func (s *station) serve(at float64, client int) (end float64, ok bool) {
	pod := s.next[client] % s.pods
	s.next[client]++
	ok = s.rng.Float64() >= s.failing
	free := s.free[pod]
	first := 0
	for i := range free {
		if free[i] < free[first] {
			first = i
		}
	}
	begin := max(at, free[first])
	if s.limit > 0 && begin > at {
		waiting := s.wait[pod]
		for len(waiting) > 0 && waiting[0] <= at {
			waiting = waiting[1:]
		}
		if len(waiting) >= s.limit {
			s.wait[pod] = waiting
			return at + 0.0005, false
		}
		s.wait[pod] = append(waiting, begin)
	}
	if s.abandons && begin-at >= s.timeout {
		return at + s.timeout, false
	}
	free[first] = begin + s.takes()
	if free[first]-at > s.timeout {
		return at + s.timeout, false
	}
	return free[first], ok
}

// play serves one window at a rate, requests/s, and tells what it looks like.
func (s *station) play(rate float64) capacity.Window {
	until := s.now + s.window
	copy(s.ended[:], s.ended[1:])
	s.ended[63] = [2]float64{}
	sent := 0.0
	carried := s.gauges
	s.gauges = make([]int, 64)
	for i, n := range carried {
		if i > 0 {
			s.gauges[i-1] = n
		}
	}
	for at := s.now + s.rng.ExpFloat64()/rate; at < until; at += s.rng.ExpFloat64() / rate {
		client := s.rng.IntN(s.clients)
		end, good := s.serve(at, client)
		which := 0
		if good {
			which = 1
		}
		sent++
		s.ended[min(63, 1+int((end-s.now)/s.window))][which]++
		// Each client reports at its own time of the window.
		report := s.now + s.window*float64(client+1)/float64(s.clients)
		for i := range s.gauges {
			if at <= report && report < end {
				s.gauges[i]++
			}
			if report += s.window; report >= end {
				break
			}
		}
	}
	inProgress := s.gauges[0]
	s.now = until
	failed, ok := s.ended[1][0], s.ended[1][1]
	return capacity.Window{
		Rate: sent / s.window, Sampled: sent / s.window, Goodput: ok / s.window, InProgress: float64(inProgress),
		Failing: failed / max(1, ok+failed), Seconds: s.window, Units: float64(s.pods),
	}
}
