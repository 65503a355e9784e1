//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestConstantDemandPushesNothing: at constant demand the assignments stand still. Where zones are full to
// the last request, whole counts of requests take one above its limit now and then, and a few of 10,000
// requests move.
func TestConstantDemandPushesNothing(t *testing.T) {
	const (
		settled = 100 * interval // what requests told of the overload at the beginning is forgotten then
		length  = settled + 400*interval
	)
	for _, trust := range isobar.CapacityTrusts() {
		constantDemand(t, trust, settled, length)
	}
}

func constantDemand(t *testing.T, trust isobar.CapacityTrust, settled, length time.Duration) {
	t.Helper()
	for _, level := range []float64{0.5, 0.86, 0.9, 0.92, 0.93, 0.97} {
		for _, delay := range []time.Duration{0, interval / 2} {
			t.Run(fmt.Sprintf("%s, load %.0f%%, pushes %v", trust, 100*level, delay), func(t *testing.T) {
				sc := &sim.Scenario{Topology: testhelp.FourZones(t), Tick: interval, Interval: interval, PushDelay: sim.Delay{Base: delay}, ReportDelay: sim.Delay{Base: delay / 5}, Length: length, Step: interval / 10}
				sc.Topology.Services[0].CapacityTrust = trust
				for i, z := range []string{"eu/a", "eu/b", "us/a", "us/b", "us/c"} {
					rate := []float64{0.5, 0.9, 1.1, 0.9, 0.6}[i] * 800 * level
					sc.Sources = append(sc.Sources, clients(z, constant(rate))...)
				}
				last := map[isobar.Locality]*isobar.Assignment{}
				pushes := 0
				for _, f := range run(t, sc) {
					s, _ := f.Plan.Service("checkout")
					for i := range s.Result.Sources {
						r := &s.Result.Sources[i]
						if f.At > settled && last[r.Source] != r.Assignment {
							pushes++
							if moved := movedShare(s.Spec, last[r.Source], r.Assignment); moved > 0.0005 {
								t.Errorf("at %v to %s: shares %.4f, want %.4f: %.4f of the requests move", f.At, r.Source, r.Shares, r.Want, moved)
							}
						}
						last[r.Source] = r.Assignment
					}
				}
				if most := map[bool]int{true: 0, false: 6}[level < 0.9]; pushes > most {
					t.Errorf("%d pushes to five sources in %v", pushes, length-settled)
				}
			})
		}
	}
}

// movedShare is the part of the requests that go elsewhere.
func movedShare(s *isobar.Service, before, after *isobar.Assignment) float64 {
	sum := 0.0
	for i := range s.Localities {
		l := s.Localities[i].Locality
		sum += math.Abs(after.Share(l) - before.Share(l))
	}
	return sum / 2
}
