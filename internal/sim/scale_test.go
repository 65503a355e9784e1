//go:build !race

package sim_test

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// wideFleet is services of ten localities each, of which 5% change their demand
// at every tick.
func wideFleet(tb testing.TB, services, localities int, length time.Duration) *sim.Scenario {
	tb.Helper()
	var rules []isobar.LatencyRule
	region := func(i int) isobar.Locality { return isobar.Locality{Region: fmt.Sprintf("r%02d", i)} }
	const regions = 20
	for i := range regions {
		for j := range i {
			rules = append(rules, isobar.LatencyRule{From: region(i), To: region(j), MS: float64(10 + (i*7+j*13)%120)})
		}
	}
	network, err := isobar.NewNetwork(rules)
	if err != nil {
		tb.Fatal(err)
	}
	sc := &sim.Scenario{
		Seed: 1, Topology: &isobar.Topology{Revision: 1, Network: network}, Length: length, Warmup: length / 10,
		Tick: interval, Interval: interval,
		ReportDelay: sim.Delay{Base: 100 * time.Millisecond}, PushDelay: sim.Delay{Base: 100 * time.Millisecond},
	}
	for i := range services {
		s := isobar.Service{Name: fmt.Sprintf("s%04d", i)}
		for j := range 10 {
			at := (i*17 + j*23) % localities
			l := isobar.Locality{Region: region(at % regions).Region, Zone: fmt.Sprintf("z%03d", at)}
			sl := isobar.ServiceLocality{Locality: l, MaxRate: 1000, Concurrency: 40}
			for e := range 3 {
				sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", i>>8, i&255, 3*j+e+1)})
			}
			s.Localities = append(s.Localities, sl)
			// Each service has its turn of one tick in twenty, with new demand.
			phase := i % 20
			sc.Sources = append(sc.Sources, sim.Source{Service: s.Name, From: l, Clients: 2, Demand: func(t time.Duration) float64 {
				turn := (int(t/interval) + phase) / 20
				return 400 + float64((turn*37+i*11+j*53)%500)
			}})
		}
		sc.Topology.Services = append(sc.Topology.Services, s)
	}
	sc.Topology.Normalize()
	return sc
}

// BenchmarkWideFleet tells how much faster than real time Isobar balances 200
// localities and 1,000 services in the simulator, planning for all of them.
func BenchmarkWideFleet(b *testing.B) {
	for _, services := range []int{100, 1000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			const length = 2 * time.Minute
			sc := wideFleet(b, services, 200, length)
			b.ResetTimer()
			for b.Loop() {
				if _, err := sim.Run(b.Context(), sc, sim.Isobar(), nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(length.Seconds()*float64(b.N)/b.Elapsed().Seconds(), "x-real-time")
		})
	}
}

// TestPartsArePlannedAsOne: a fleet that is planned in parts comes out as if it
// were not.
func TestPartsArePlannedAsOne(t *testing.T) {
	run := func(processors int) *sim.Result {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		r, err := sim.Run(t.Context(), wideFleet(t, 64, 20, 6*interval), sim.Isobar(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if a, b := run(1), run(2); !reflect.DeepEqual(a, b) {
		t.Errorf("as one: mean %v ms, peak %v; in parts: %v ms, %v", a.MeanMS, a.Peak, b.MeanMS, b.Peak)
	}
}
