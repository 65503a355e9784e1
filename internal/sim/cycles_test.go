//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/sim"
)

// oscillations counts how often a series turns, where it oscillates by a point or
// more.
func oscillations(series []float64) int {
	turns, up, moved, last := 0, false, false, series[0]
	for _, v := range series {
		d := v - last
		switch {
		case moved && d != 0 && up == (d > 0):
		case math.Abs(d) < 0.01:
			continue
		default:
			if moved {
				turns++
			}
			moved, up = true, d > 0
		}
		last = v
	}
	return turns
}

// TestWrongCapacityAndSilentClientsDoNotOscillate: what utilization tells beyond the
// reported load moves load away, and with it what told so. This is where a
// quick estimate is a limit cycle: 74 turns in 180 ticks, with half of the
// declared capacity and two of five clients silent.
func TestWrongCapacityAndSilentClientsDoNotOscillate(t *testing.T) {
	const (
		settled = 5 * time.Minute
		ticks   = 180
	)
	for _, c := range []struct {
		factor, noise float64
		delay         int
		load          float64
	}{{0.5, 0, 3, 1400}, {0.5, 0, 1, 1400}, {0.5, 0.05, 0, 960}, {0.5, 0.05, 1, 960}, {0.75, 0.05, 0, 1400}, {1, 0.05, 0, 1400}, {1, 0.05, 3, 1400}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			delay := time.Duration(c.delay) * interval
			sc := stepScenario(t, c.load, 0, delay, delay)
			sc.Seed, sc.Timeout, sc.Length = 3, 0, settled+ticks*interval
			sc.Capacities = []sim.Capacity{{Locality: loc("us/a"), Factor: sim.Constant(c.factor)}}
			sc.Topology.Services[0].ORCA.On, sc.UtilizationNoise = true, c.noise
			for i := range sc.Sources {
				sc.Sources[i].Silent, sc.Sources[i].Noise = 2, c.noise/2
			}
			series := make([][]float64, len(sc.Topology.Services[0].Localities))
			_, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
				s, _ := f.Plan.Service("checkout")
				all := 0.0
				for _, y := range s.Result.Load {
					all += y
				}
				for l, y := range s.Result.Load {
					if f.At > settled {
						series[l] = append(series[l], y/all)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for l := range series {
				if n := oscillations(series[l]); n > ticks/20 {
					t.Errorf("%s turns %d times in %d ticks", sc.Topology.Services[0].Localities[l].Locality, n, ticks)
				}
			}
		})
	}
}

// TestDemandIsNoCycle: demand that goes up and down, from hours to a few ticks,
// is followed as ever.
func TestDemandIsNoCycle(t *testing.T) {
	for _, period := range []time.Duration{4 * interval, 8 * interval, 10 * time.Minute, 2 * time.Hour} {
		for _, noise := range []float64{0, 0.03} {
			t.Run(fmt.Sprintf("%s, noise %v", period, noise), func(t *testing.T) {
				sc := stepScenario(t, 960, 0, interval/2, interval/2)
				sc.Length = min(2*time.Hour, 40*period)
				sc.Sources[0].Demand = func(at time.Duration) float64 {
					return 700 + 400*math.Sin(2*math.Pi*at.Seconds()/period.Seconds())
				}
				for i := range sc.Sources {
					sc.Sources[i].Noise = noise
				}
				_, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
					if s, _ := f.Plan.Service("checkout"); s.Damping != nil && s.Damping.Found > 0 {
						return fmt.Errorf("at %v: %s", f.At, s.Damping)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
