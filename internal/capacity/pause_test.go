package capacity_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar/internal/capacity"
)

// A pause of servers or of a client (a garbage collection, for example) during which
// requests in progress are counted hardly changes the estimate.
func TestPauseTellsLittle(t *testing.T) {
	for _, load := range []float64{0.4, 0.55, 0.7} {
		t.Run(fmt.Sprintf("load %.2f", load), func(t *testing.T) {
			usual := lowWindows(load, 0)
			for _, pause := range []float64{0.1, 0.2, 0.5} {
				if low := lowWindows(load, pause); low > usual+2 {
					t.Errorf("a pause of %.0f ms: plans go by less than 0.88 of the capacity for %.1f of 40 windows, without it for %.1f", 1000*pause, low, usual)
				}
			}
		})
	}
}

// lowWindows plays 40 windows, of which the first is counted in a pause of so many seconds, and
// returns in how many of them plans go by less than 0.88 of the capacity, a mean of 20 plays.
func lowWindows(load, pause float64) float64 {
	const plays = 20
	low := 0
	for seed := range uint64(plays) {
		s := station{pods: 2, workers: 4, service: 0.02, cv2: 1, timeout: 2, clients: 3, window: 1}
		s.start(seed)
		capacityOf := s.capacity() / float64(s.pods)
		prior := capacity.Prior{PerUnit: capacityOf, Width: 2, Service: s.service}
		var m capacity.Model
		for i := range 60 {
			w := s.play(load * s.capacity())
			if i == 20 {
				w.InProgress += pause * w.Rate
			}
			m.Observe(&w, &prior)
			if e := m.Estimate(&prior); i >= 20 && e.Plan < 0.88*capacityOf {
				low++
			}
		}
	}
	return float64(low) / plays
}

// A second window confirms the first: an overload of a locality that declares too much is found
// in two.
func TestOverloadIsFoundInTwoWindows(t *testing.T) {
	for _, load := range []float64{1.1, 1.3} {
		for _, declared := range []float64{1.5, 2} {
			const plays = 20
			plan := 0.0
			for seed := range uint64(plays) {
				s := station{pods: 2, workers: 4, service: 0.02, cv2: 1, timeout: 2, clients: 3, window: 1}
				s.start(seed)
				prior := capacity.Prior{PerUnit: declared * s.capacity() / 2, Width: 2, Service: s.service}
				var m capacity.Model
				for range 20 {
					w := s.play(0.6 * s.capacity())
					m.Observe(&w, &prior)
				}
				for range 2 {
					w := s.play(load * s.capacity())
					m.Observe(&w, &prior)
				}
				plan += 2 * m.Estimate(&prior).Plan / s.capacity() / plays
			}
			if plan > 1.1 {
				t.Errorf("load %.1f, declared %.1f times the capacity: plans go by %.2f of it", load, declared, plan)
			}
		}
	}
}
