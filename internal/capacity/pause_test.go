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

// A locality that declares too much is found out in one window when its load rises, and in two
// when it gets slower: the second one tells that from a pause.
func TestOverloadIsFoundSoon(t *testing.T) {
	for _, x := range []struct {
		load, slower float64
		windows      int
	}{{1.1, 1, 1}, {1.3, 1, 1}, {0.6, 2, 2}, {0.6, 3, 2}} {
		for _, declared := range []float64{1.5, 2} {
			const plays = 20
			plan := 0.0
			for seed := range uint64(plays) {
				s := station{pods: 2, workers: 4, service: 0.02, cv2: 1, timeout: 2, clients: 3, window: 1}
				s.start(seed)
				before := s.capacity()
				prior := capacity.Prior{PerUnit: declared * before / 2, Width: 2, Service: s.service}
				var m capacity.Model
				for range 20 {
					w := s.play(0.6 * before)
					m.Observe(&w, &prior)
				}
				s.service *= x.slower
				for range x.windows {
					w := s.play(x.load * before)
					m.Observe(&w, &prior)
				}
				plan += 2 * m.Estimate(&prior).Plan / before / plays
			}
			if plan > 1.12 {
				t.Errorf("load %.1f, %.0f times slower, declared %.1f times the capacity: plans go by %.2f of it after %d windows", x.load, x.slower, declared, plan, x.windows)
			}
		}
	}
}
