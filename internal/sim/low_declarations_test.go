//go:build !race

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// TestLowDeclarationsKeepRequestsNear asserts that requests stay in their region where each
// locality serves several times what it declares, in a fraction of the time that its capacity and
// its concurrency declare. The locality with more requests shows it first: beside it, the other
// one would look slow, lose its requests to it, and never show what it serves.
func TestLowDeclarationsKeepRequestsNear(t *testing.T) {
	for _, factor := range []float64{3, 10} {
		t.Run(fmt.Sprintf("%.0f times", factor), func(t *testing.T) {
			network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 60}})
			if err != nil {
				t.Fatal(err)
			}
			s := isobar.Service{Name: "checkout"}
			sc := &sim.Scenario{
				Seed: 1, Tick: interval, Interval: interval, Length: 15 * time.Minute, Warmup: 2 * time.Minute,
				ReportDelay: sim.Delay{Base: 100 * time.Millisecond}, PushDelay: sim.Delay{Base: 100 * time.Millisecond},
			}
			for i, at := range []string{"eu/a", "us/a"} {
				sl := isobar.ServiceLocality{Locality: loc(at), MaxRate: 90, Concurrency: 20}
				for e := range 3 {
					sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.0.%d:80", i, e+1)})
				}
				s.Localities = append(s.Localities, sl)
				sc.Capacities = append(sc.Capacities, sim.Capacity{Locality: loc(at), Factor: sim.Constant(factor)})
				sc.Sources = append(sc.Sources, sim.Source{Service: "checkout", From: loc(at), Demand: sim.Times(sim.Constant([]float64{30, 62}[i]), sim.Wave(5*time.Minute, time.Minute, 0.2)), Noise: 0.02, Clients: 4})
			}
			sc.Topology = &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{s}}
			r, err := sim.Run(t.Context(), sc, sim.Isobar(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.1f%% of the requests leave their region, %.1f ms on average", 100*r.CrossRegion, r.MeanMS)
			if r.CrossRegion > 0.03 {
				t.Errorf("%.1f%% of the requests leave their region, of which each has room", 100*r.CrossRegion)
			}
		})
	}
}
