//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/sim"
)

// TestStableUnderDelaysAndWrongCapacity: whatever reports and pushes take, up to
// three intervals, and however wrong declared capacities are, up to half, shares
// stand still after a step; they do not oscillate.
func TestStableUnderDelaysAndWrongCapacity(t *testing.T) {
	const (
		settled = stepAt + 40*interval
		window  = 20
	)
	for reports := range 4 {
		for pushes := range 4 {
			for _, factor := range []float64{0.5, 1, 1.5} {
				t.Run(fmt.Sprintf("reports %d, pushes %d, capacity x%v", reports, pushes, factor), func(t *testing.T) {
					sc := stepScenario(t, 960, 0, time.Duration(reports)*interval, time.Duration(pushes)*interval)
					sc.Capacities = []sim.Capacity{{Locality: loc("us"), Factor: sim.Constant(factor)}}
					sc.Timeout = 0
					sc.Length = settled + 2*window*interval
					var frames []sim.Frame
					_, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
						for _, v := range f.Plan.Violations {
							t.Errorf("at %v: %+v", f.At, v)
						}
						if f.At >= settled {
							frames = append(frames, f)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					for from := 0; from+window <= len(frames); from += window {
						for k, n := range turns(frames[from : from+window]) {
							if n > 1 {
								t.Errorf("share %d changes its direction %d times in %d ticks from %v on", k, n, window, frames[from].At)
							}
						}
					}
				})
			}
		}
	}
}

// turns counts, for each share, how often it changes its direction by more than
// a tenth of a point.
func turns(frames []sim.Frame) []int {
	first := shares(frames[0])
	out, last, sign := make([]int, len(first)), first, make([]float64, len(first))
	for _, f := range frames[1:] {
		now := shares(f)
		for k := range now {
			d := now[k] - last[k]
			if math.Abs(d) <= 0.001 {
				continue
			}
			s := math.Copysign(1, d)
			if sign[k] != 0 && s != sign[k] {
				out[k]++
			}
			sign[k] = s
			last[k] = now[k]
		}
	}
	return out
}
