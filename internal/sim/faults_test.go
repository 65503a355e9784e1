//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/sim/randomfleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// A zone loses half of its capacity and nobody says so: with capacity_trust
// observed the requests tell, one by one.
func TestBrownoutIsFoundByRequests(t *testing.T) {
	t.Parallel()
	sc := randomfleet.New(102, randomfleet.Brownout)
	sc.Topology.Services[0].CapacityTrust = isobar.TrustObserved
	r, err := sim.Run(t.Context(), sc, sim.Isobar(), nil)
	if err != nil {
		t.Fatal(err)
	}
	best, err := sim.Run(t.Context(), sc, sim.Policies()[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.MeanMS > 1.15*best.MeanMS || r.Failed > best.Failed+0.003 {
		t.Errorf("mean %.1f ms, %.2f%% fail; the clairvoyant %.1f ms, %.2f%%", r.MeanMS, 100*r.Failed, best.MeanMS, 100*best.Failed)
	}
}

// Declarations that are wrong by up to a factor of 3 cost at most 15% of latency in most
// fleets, once requests have told.
func TestWrongDeclarationsAreFound(t *testing.T) {
	t.Parallel()
	const fleets = 10
	near := 0
	for seed := range uint64(fleets) {
		sc := randomfleet.New(500+seed, randomfleet.Wrong)
		sc.Topology.Services[0].CapacityTrust = isobar.TrustObserved
		r, err := sim.Run(t.Context(), sc, sim.Isobar(), nil)
		if err != nil {
			t.Fatal(err)
		}
		best, err := sim.Run(t.Context(), sc, sim.Policies()[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.MeanMS <= 1.15*best.MeanMS {
			near++
		}
	}
	if near < fleets*9/10 {
		t.Errorf("%d of %d fleets are within 15%% of the clairvoyant", near, fleets)
	}
}

// One of 12 clients reports other requests in progress than it has, no load, or many
// times its load: the plan moves no locality by more than two twelfths of its utilization,
// whatever capacities it goes by. In the small services, whose clients have a fifth of a
// request in progress, their longer history tells the lie.
func TestLiarMovesNoLocalityFar(t *testing.T) {
	t.Parallel()
	const clients = 12
	factor := func(v float64) *float64 { return &v }
	for seed := range uint64(4) {
		for _, trust := range isobar.CapacityTrusts() {
			size := 1.0
			if seed >= 2 {
				size = 0.25
			}
			fleet := func(lie float64, inProgress *float64) *sim.Scenario {
				sc := randomfleet.New(seed+1, randomfleet.None)
				sc.Requests = false // rates: without chance, only the lie makes a difference
				sc.Topology.Services[0].CapacityTrust = trust
				for i := range sc.Sources {
					sc.Sources[i].Clients = clients
					sc.Sources[i].Demand = sim.Times(sc.Sources[i].Demand, sim.Constant(size))
				}
				for i := range sc.Topology.Services[0].Localities {
					l := &sc.Topology.Services[0].Localities[i]
					l.MaxRate, l.Concurrency = l.MaxRate*size, l.Concurrency*size
				}
				liar := &sc.Sources[int(seed)%len(sc.Sources)]
				if lie != 1 || inProgress != nil {
					liar.Liars, liar.Lie, liar.LieInProgress = 1, lie, inProgress
				}
				return sc
			}
			honest := utilizations(t, fleet(1, nil))
			r := rand.New(rand.NewPCG(seed, 12))
			lies := map[string]*sim.Scenario{
				"no load": fleet(0, nil), "10 times the load": fleet(10, nil), "100 times the load": fleet(100, nil), "1000 times the load": fleet(1000, nil),
				"random load":         fleet(math.Exp(8*r.Float64()-2), nil),
				"nothing in progress": fleet(1, factor(0)), "10 times in progress": fleet(1, factor(10)), "1000 times in progress": fleet(1, factor(1000)),
				"random in progress": fleet(1, factor(math.Exp(8*r.Float64()-2))),
			}
			for name, sc := range lies {
				for l, got := range utilizations(t, sc) {
					if off := math.Abs(got - honest[l]); off > honest[l]*2/clients {
						t.Errorf("seed %d, capacity_trust %s, %s: locality %d at %.1f%%, %.1f%% without the lie", seed+1, trust, name, l, 100*got, 100*honest[l])
					}
				}
			}
		}
	}
}

// utilizations is what the published shares make of the true demand in each locality,
// as a part of its true capacity, in the mean of the measured time.
func utilizations(t *testing.T, sc *sim.Scenario) []float64 {
	t.Helper()
	s := &sc.Topology.Services[0]
	out, n := make([]float64, len(s.Localities)), 0.0
	_, err := sim.Run(t.Context(), sc, sim.Isobar(), func(f sim.Frame) error {
		if f.At < sc.Warmup {
			return nil
		}
		n++
		for i := range sc.Sources {
			src := &sc.Sources[i]
			a := f.Plan.Assignment(s.Name, src.From)
			if a == nil {
				return fmt.Errorf("no assignment from %s", src.From)
			}
			for l := range s.Localities {
				out[l] += src.Demand(f.At) * a.Share(s.Localities[l].Locality) / s.Localities[l].MaxRate
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for l := range out {
		out[l] /= n
	}
	return out
}

// With capacities that are declared rightly, plans that use estimates from requests settle
// after a step as those do that know the capacities, but for a few delays.
func TestStepSettlesByRequests(t *testing.T) {
	settled, all := 0, 0
	for _, step := range steps {
		for delay := range 4 {
			sc := stepScenario(t, step.after, step.other, time.Duration(delay)*interval, time.Duration(3-delay)*interval)
			sc.Timeout = time.Second
			sc.Topology.Services[0].CapacityTrust = isobar.TrustObserved
			at, limit, overshoot := settling(sc, run(t, sc))
			all++
			if at >= 0 && at <= limit {
				settled++
			}
			if overshoot > 5 {
				t.Errorf("%s, reports %d: overshoot of %.1f points", step.name, delay, overshoot)
			}
		}
	}
	if settled < all-2 {
		t.Errorf("%d of %d settle in time", settled, all)
	}
}

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
