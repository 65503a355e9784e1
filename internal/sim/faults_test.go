package sim_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// A zone loses half of its capacity and nobody says so: with capacity_trust
// observed the requests tell, one by one.
func TestBrownoutIsFoundByRequests(t *testing.T) {
	t.Parallel()
	sc := sim.FaultyFleet(102, sim.FaultBrownout)
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
		sc := sim.FaultyFleet(500+seed, sim.FaultWrong)
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
	if near < fleets*7/10 {
		t.Errorf("%d of %d fleets are within 15%% of the clairvoyant", near, fleets)
	}
}
