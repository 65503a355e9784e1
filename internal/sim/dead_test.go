//go:build !race

package sim_test

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// fourZones is three zones in one region and one far away, each able to carry
// 800 requests/s beneath its ceiling. Distances inside the region are equal.
func fourZones(t *testing.T) *isobar.Topology {
	t.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	s := isobar.Service{Name: "checkout"}
	for i, z := range fourZoneNames {
		sl := isobar.ServiceLocality{Locality: loc(z), MaxRate: 1000, Concurrency: 20}
		for e := range 4 {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, e+1)})
		}
		s.Localities = append(s.Localities, sl)
	}
	top := &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{s}}
	top.Normalize()
	return top
}

var fourZoneNames = []string{"eu/a", "us/a", "us/b", "us/c"}

// noisy is a rate that differs in every interval by up to a fraction, the same
// for all clients of a source.
func noisy(source string, rate, noise float64) sim.Shape {
	return func(at time.Duration) float64 {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%s %d", source, at/interval)
		return rate * (1 + noise*(2*float64(h.Sum64()%1000)/1000-1))
	}
}

// deadScenario lets us/b fail all requests for a while. The sources' demand is
// uneven, so that something overflows and shares follow the noise.
func deadScenario(t *testing.T, level, noise float64, delay, dies, lives, length time.Duration) *sim.Scenario {
	t.Helper()
	sc := &sim.Scenario{
		Topology: fourZones(t), Tick: interval, Interval: interval,
		PushDelay: sim.Delay{Base: delay}, ReportDelay: sim.Delay{Base: delay / 5}, Length: length,
	}
	for i, z := range fourZoneNames {
		rate := []float64{0.6, 1.2, 0.9, 0.9}[i] * 800 * level * 4 / 3.6
		sc.Sources = append(sc.Sources, clients(z, noisy(z, rate, noise))...)
	}
	sc.Outages = []sim.Outage{{Locality: loc("us/b"), From: dies, To: lives, Unnoticed: true}}
	return sc
}

// shareOf is the largest share that any source sends to a locality.
func shareOf(f sim.Frame, to string) float64 {
	worst := 0.0
	for _, z := range fourZoneNames {
		worst = max(worst, f.Plan.Assignment("checkout", loc(z)).Share(loc(to)))
	}
	return worst
}

// TestDeadZoneStaysFound: a zone that dies unannounced is found within a
// minute, gets nothing but probes for as long as it is dead, and is taken back
// when it lives again, also under noise that changes the plan at every tick,
// with pushes that take half an interval.
func TestDeadZoneStaysFound(t *testing.T) {
	const (
		dies   = 300 * time.Second
		lives  = dies + 16*time.Minute
		length = lives + 40*interval
	)
	for _, level := range []float64{0.5, 0.7, 0.9} {
		for _, noise := range []float64{0, 0.05} {
			for _, delay := range []time.Duration{0, interval / 2} {
				t.Run(fmt.Sprintf("load %.0f%%, noise %.0f%%, pushes %v", 100*level, 100*noise, delay), func(t *testing.T) {
					found := time.Duration(-1)
					back := 0.0
					for _, f := range run(t, deadScenario(t, level, noise, delay, dies, lives, length)) {
						share := shareOf(f, "us/b")
						switch {
						case f.At <= dies:
						case found < 0 && share <= 0.011:
							found = f.At - dies
						case found >= 0 && f.At <= lives && share > 0.011:
							t.Fatalf("at %v, %v after it was found dead, a source sends %.3f to us/b", f.At, f.At-dies-found, share)
						case f.At > lives:
							back = f.Plan.Assignment("checkout", loc("us/b")).Share(loc("us/b"))
						}
					}
					if found < 0 || found > time.Minute {
						t.Errorf("found after %v", found)
					}
					if back < 0.9 {
						t.Errorf("40 ticks after it lives again its own source sends %.3f there", back)
					}
				})
			}
		}
	}
}

// TestWorkingZoneIsBackInSixTicks asserts that the own clients of a zone that failed all
// requests for a minute are back, to within two points, six ticks after it works again,
// whenever in an interval that is, and with pushes that take up to half an interval. They
// stay, and no zone is overfull then.
func TestWorkingZoneIsBackInSixTicks(t *testing.T) {
	t.Parallel()
	const dies = 300 * time.Second
	for _, trust := range isobar.CapacityTrusts() {
		for _, delay := range []time.Duration{0, interval / 2} {
			for _, phase := range []time.Duration{0, interval / 2, interval * 9 / 10} {
				t.Run(fmt.Sprintf("%s, pushes %v, phase %v", trust, delay, phase), func(t *testing.T) {
					t.Parallel()
					lives := dies + time.Minute + phase
					sc := deadScenario(t, 0.9, 0.05, delay, dies, lives, lives+20*interval)
					sc.Topology.Services[0].CapacityTrust = trust
					before, back, ticks, fullest := 0.0, 0, 0, 0.0
					for _, f := range run(t, sc) {
						share := f.Plan.Assignment("checkout", loc("us/b")).Share(loc("us/b"))
						switch {
						case f.At <= dies:
							before = share
						case f.At > lives:
							ticks++
							if back == 0 && share >= before-0.02 {
								back = ticks
							}
							if back > 0 && share < before-0.02 {
								t.Errorf("%d ticks after it works again its own clients send %.3f there, after more", ticks, share)
							}
							if ticks > 6 {
								fullest = max(fullest, f.Sample.Fullest)
							}
						}
					}
					if back == 0 || back > 6 {
						t.Errorf("its own clients are back after %d ticks, want six at most", back)
					}
					if fullest > 1 {
						t.Errorf("a zone is %.1f%% full once all are back", 100*fullest)
					}
				})
			}
		}
	}
}
