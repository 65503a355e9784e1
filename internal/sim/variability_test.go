//go:build !race

package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// variableScenario is four zones with queues, one of which sends a square wave.
func variableScenario(t *testing.T, seed uint64, period, start time.Duration, variability, noise float64) *sim.Scenario {
	t.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	s := isobar.Service{Name: "checkout"}
	sc := &sim.Scenario{
		Seed: seed, Tick: interval, Interval: interval, Length: 8 * time.Minute, Warmup: 3 * time.Minute,
		ReportDelay: sim.Delay{Base: 100 * time.Millisecond, Jitter: 200 * time.Millisecond},
		PushDelay:   sim.Delay{Base: 100 * time.Millisecond, Jitter: 400 * time.Millisecond},
	}
	for i, z := range []string{"us/a", "us/b", "us/c", "eu/a"} {
		sl := isobar.ServiceLocality{Locality: loc(z), MaxRate: 1000, Concurrency: 40}
		for e := range 8 {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.0.%d:80", i, e+1)})
		}
		s.Localities = append(s.Localities, sl)
		demand := sim.Constant(500)
		if i == 0 {
			demand = sim.Times(sim.Constant(700), sim.Square(period, start, 1-variability, 1+variability))
		}
		sc.Sources = append(sc.Sources, sim.Source{Service: "checkout", From: loc(z), Demand: demand, Noise: noise, Clients: 10})
	}
	sc.Topology = &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{s}}
	return sc
}

func policy(t *testing.T, name string) sim.Policy {
	t.Helper()
	for _, p := range sim.Policies() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no policy %q", name)
	return sim.Policy{}
}

// TestSquareWaves: where demand varies faster than decisions follow, mean latency is
// not above that of the best weights typed by hand, made for the true mean or for a
// peak that is known beforehand, and near that of the best policies otherwise; and
// the plan says for what it is made.
func TestSquareWaves(t *testing.T) {
	for _, tt := range []struct {
		period, start      time.Duration
		variability, noise float64
		within             float64 // of the mean latency of static weights
	}{
		// Capacities that requests tell wander a little: 0.2% more than with those that are declared.
		{period: 10 * time.Second, variability: 0.5, within: 1},
		{period: 10 * time.Second, start: 1700 * time.Millisecond, variability: 0.5, noise: 0.02, within: 1},
		{period: 10 * time.Second, start: 4 * time.Second, variability: 0.4, noise: 0.05, within: 1},
		{period: 10 * time.Second, variability: 0.2, within: 1.002},
		{period: 15 * time.Second, variability: 0.5, noise: 0.02, within: 1},
		{period: 7 * time.Second, variability: 0.5, within: 1.03},
		{period: 20 * time.Second, variability: 0.2, within: 1.005},
		{period: 20 * time.Second, start: 3 * time.Second, variability: 0.5, within: 1.03},
		{period: 60 * time.Second, variability: 0.2, within: 1.01},
	} {
		t.Run(fmt.Sprintf("period %v from %v, variability %v, noise %v", tt.period, tt.start, tt.variability, tt.noise), func(t *testing.T) {
			sc := variableScenario(t, 3, tt.period, tt.start, tt.variability, tt.noise)
			var why string
			is, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
				for _, v := range f.Plan.Violations {
					t.Errorf("at %v: %+v", f.At, v)
				}
				e, err := f.Plan.Explain("checkout", loc("us/a"))
				if err != nil {
					return err
				}
				why = e.Summary
				if f.At > sc.Warmup && (e.Demand.Variability == 0 || e.Demand.Variability > 1.5*tt.variability+0.02) {
					t.Errorf("at %v: a variability of %v is seen", f.At, e.Demand.Variability)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			fixed, err := sim.Run(t.Context(), sc, policy(t, "static"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if is.MeanMS > tt.within*fixed.MeanMS {
				t.Errorf("mean latency %.2f ms, %.2f ms with static weights", is.MeanMS, fixed.MeanMS)
			}
			if !strings.Contains(why, "within report intervals") {
				t.Errorf("summary %q", why)
			}
		})
	}
}

// TestSteadyNoiseHasNoVariability: what only fluctuates is planned for as it is.
func TestSteadyNoiseHasNoVariability(t *testing.T) {
	for seed := range uint64(5) {
		sc := variableScenario(t, seed, 10*time.Second, 0, 0, 0.05)
		if _, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
			if s, _ := f.Plan.Service("checkout"); s.Variability() > 0 {
				t.Errorf("seed %d, at %v: a variability of %v in steady demand", seed, f.At, s.Variability())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
