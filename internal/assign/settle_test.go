package assign_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/assign"
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
		if found := assign.Check(nil, out, checkInput(in)); (len(found) > 0) != row.full {
			t.Errorf("%s: without the reason: %v", row.name, found)
		}
	}
}
