package sim_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestUndeclaredCapacity: where nobody declared what endpoints can serve, noisy
// reports of their utilization, or what requests tell, are far better than counting them
// equal.
func TestUndeclaredCapacity(t *testing.T) {
	mean := map[string]float64{}
	for name, trust := range map[string]isobar.CapacityTrust{"equal": isobar.TrustDeclared, "utilization": isobar.TrustDeclared, "requests": isobar.TrustObserved} {
		orca := name == "utilization"
		sc := &sim.Scenario{
			Topology: testhelp.FourZones(t), Tick: interval, Interval: interval, Step: interval / 10, Length: 40 * time.Minute, Warmup: 20 * time.Minute,
			ReportDelay: sim.Delay{Base: interval / 10}, PushDelay: sim.Delay{Base: interval / 10},
			Undeclared: true, UtilizationNoise: 0.05,
			Capacities: []sim.Capacity{{Locality: loc("us/a"), Factor: constant(0.6)}},
		}
		sc.Topology.Services[0].ORCA.On = orca
		sc.Topology.Services[0].CapacityTrust = trust
		for i, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
			sc.Sources = append(sc.Sources, clients(z, sim.Wave(12*time.Minute, time.Duration(i)*time.Minute, 0.25))...)
			wave := sc.Sources[i].Demand
			sc.Sources[i].Demand = func(at time.Duration) float64 { return 520 * wave(at) }
		}
		r, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
			for _, v := range f.Plan.Violations {
				t.Errorf("at %v: %+v", f.At, v)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		mean[name] = r.MeanMS
		if name != "equal" && r.Fullest > 0.8 {
			t.Errorf("a locality at %.0f%%", 100*r.Fullest)
		}
	}
	for _, name := range []string{"utilization", "requests"} {
		if mean[name] > 0.8*mean["equal"] {
			t.Errorf("mean %.1f ms with %s, %.1f ms without", mean[name], name, mean["equal"])
		}
	}
}
