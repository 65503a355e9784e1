package assign_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// A share does not rise above the most that the source may get, and what that
// frees stays where it was.
func TestSharesAreHeldBack(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 300, []float64{0, 1, 80}, 0.4, 0.4, 0.2))
	out := decide(t, in)
	in.Sources[0].Target = []float64{0.45, 0.35, 0.2}
	in.Sources[0].Most = []float64{0.4, 1, 1}
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 40, 40, 20)
	wantReason(t, out, 0, assign.ReasonHeld)
	// What has to leave leaves, to where it may go.
	in.Sources[0].Target = []float64{0.45, 0.55, 0}
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 40, 50, 10)
	// Where nothing else is left, it does not count.
	alone := input([]assign.Site{site(east, 1000), site(west, 1000)}, source(east, 300, []float64{0, 80}, 0.5, 0.5))
	was := decide(t, alone)
	alone.Sites[1].Capacity, alone.Sites[1].Unreachable = 0, true
	alone.Sources[0].Target, alone.Sources[0].Most = []float64{1, 0}, []float64{0.5, 1}
	wantShares(t, decide(t, then(alone, was)), 0, 99, 1)
}

// What comes back after an outage is bound by the most alone, not by the step of a
// tick; and only in mode full.
func TestSharesComeBack(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(west, 1000)}, source(east, 300, []float64{0, 80}, 0.01, 0.99))
	start := decide(t, in)
	in.Sources[0].Target, in.Sources[0].Back = []float64{1, 0}, []bool{true, false}
	out := start
	for _, most := range []float64{0.25, 0.5, 1} {
		in.Sources[0].Most = []float64{most, 1}
		out = decide(t, then(in, out))
		share := min(99.5, 100*most) // what is left of the other leaves in the end
		wantShares(t, out, 0, share, 100-share)
	}
	in.Sources[0].Back = nil
	wantShares(t, decide(t, then(in, start)), 0, 11, 89)
	in.Sources[0].Back = []bool{true, false}
	in.Service.Mode, in.Service.MaxShift = isobar.ModeBounded, 100
	wantShares(t, decide(t, then(in, start)), 0, 11, 89)
}
