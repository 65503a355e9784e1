package assign_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// What is too little to enter stays where it is, if there is room; else it
// enters, and the reasons say so.
func TestSmallSharesEnterOnlyWithoutRoomElsewhere(t *testing.T) {
	for _, row := range []struct {
		name   string
		room   float64 // of the site in use, above its load
		shares []float64
		full   bool
	}{
		{"room", 10, []float64{100, 0}, false},
		{"full", 0, []float64{99.4, 0.6}, true},
	} {
		in := input([]assign.Site{site(east, (994+row.room)/0.8), site(west, 1000)}, source(east, 1000, []float64{0, 80}, 0.994, 0.006))
		out := decide(t, in)
		wantShares(t, out, 0, row.shares...)
		if got := reason(&out.Sources[0], assign.ReasonFull) != ""; got != row.full {
			t.Errorf("%s: reasons %v", row.name, out.Sources[0].Reasons)
		}
		out.Sources[0].Reasons = nil
		if found := invariant.Check(nil, out, checkInput(in)); (len(found) > 0) != row.full {
			t.Errorf("%s: without the reason: %v", row.name, found)
		}
	}
}

// Forty edge zones of which none gets half a point relieve a core that is too
// full for its demand: nobody else has room, so each enters with what it gets.
func TestManySmallSitesRelieveAFullOne(t *testing.T) {
	sites, distance, target := []assign.Site{site(east, 6000)}, []float64{0}, []float64{4800.0 / 6200}
	for i := range 40 {
		sites = append(sites, site(isobar.Locality{Region: "east", Zone: fmt.Sprintf("e%02d", i)}, 50))
		distance, target = append(distance, 5), append(target, 1400.0/6200/40)
	}
	alone := make([]float64, len(sites))
	alone[0] = 1
	out := decide(t, input(sites, source(east, 4000, distance, alone...)))
	in := input(sites, source(east, 6200, distance, target...))
	for range 4 {
		out = decide(t, then(in, out))
	}
	if most := 1.001 * sites[0].Limit(); out.Load[0] > most {
		t.Errorf("the core keeps %.1f requests/s, its limit is %.1f: %v", out.Load[0], sites[0].Limit(), out.Sources[0].Reasons)
	}
}
