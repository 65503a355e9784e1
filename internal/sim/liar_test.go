package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

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
				sc := sim.FaultyFleet(seed+1, sim.FaultNone)
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
