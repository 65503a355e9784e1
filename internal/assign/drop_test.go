package assign_test

import (
	"math"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

func TestDrops(t *testing.T) {
	in := input([]assign.Site{site(east, 1000)}, source(east, 1000, []float64{0}, 1))
	in.Service.MaxShed = 0.3
	var out *assign.Result
	for tick, row := range []struct{ shed, want float64 }{
		{0, 0},
		{0.2, 0.2},         // up at once
		{0.200_05, 0.2},    // too little to push
		{0.2034, 0.2034},   // 1/10,000 is what the wire can tell
		{0.203_45, 0.2034}, // and again too little
		{0.25, 0.25},       // more
		{0.02, 0.125},      // down by half a tick
		{0.1, 0.1},         // but not below what is needed
		{0, 0.025},         // down faster where all fits
		{0, 0.0063},
		{0, 0}, // and then off
		{0.9, 0.3},
	} {
		in.Shed = row.shed
		out = decide(t, then(in, out))
		if math.Abs(out.Drop-row.want) > 1e-12 || out.Sources[0].Assignment.Drop != out.Drop {
			t.Errorf("tick %d, shed %v: drop %v, want %v", tick, row.shed, out.Drop, row.want)
		}
		if got := out.Load[0]; math.Abs(got-1000*(1-out.Drop)) > 1e-6 {
			t.Errorf("tick %d: load %v with a drop of %v", tick, got, out.Drop)
		}
		if out.Drop > 0 {
			wantReason(t, out, 0, assign.ReasonShed)
		}
	}
	in.Service.Mode, in.Shed = isobar.ModeObserve, 0.9
	if got := decide(t, then(in, out)).Drop; got != 0.075 {
		t.Errorf("mode observe: %v, want 0.075: it only ends what there was", got)
	}
	in.Service.Mode = isobar.ModeFull
	// Without a decision the drop stays, but an operator can end it.
	in.Trigger = assign.Rebase
	in.Shed = 0
	if got := decide(t, then(in, out)).Drop; got != 0.3 {
		t.Errorf("after a rebase %v, want 0.3", got)
	}
	in.Service.MaxShed = 0
	if got := decide(t, then(in, out)).Drop; got != 0 {
		t.Errorf("without leave to shed %v, want 0", got)
	}
}

// A drop ends at once where the demand, which counts dropped requests, is well
// below what the localities may carry.
func TestDropEndsAtOnce(t *testing.T) {
	for _, row := range []struct{ demand, want float64 }{{2000, 0.67}, {800, 0.1675}, {681, 0.1675}, {679, 0}, {0, 0}} {
		in := input([]assign.Site{site(east, 1000)}, source(east, 2000, []float64{0}, 1))
		in.Service.MaxShed, in.Shed = 0.8, 0.67
		before := decide(t, in)
		in.Sources[0].Demand = row.demand
		if row.demand < 2000 {
			in.Shed = 0
		}
		if got := decide(t, then(in, before)).Drop; math.Abs(got-row.want) > 1e-12 {
			t.Errorf("demand %v: drop %v, want %v", row.demand, got, row.want)
		}
	}
}

// Large drops are planned as they can be told: in whole percents, within what
// the operator allows.
func TestLargeDropsAreWholePercents(t *testing.T) {
	tests := []struct{ shed, most, want float64 }{
		{0.123456, 1, 0.1235}, {0.4294, 1, 0.4294}, {0.4295, 1, 0.43}, {0.501, 1, 0.51}, {0.501, 0.505, 0.5}, {0.9, 0.4299, 0.4294}, {0.9, 0.4, 0.4},
	}
	for _, tt := range tests {
		in := input([]assign.Site{site(east, 1000)}, source(east, 1000, []float64{0}, 1))
		in.Service.MaxShed, in.Shed = tt.most, tt.shed
		if got := assign.Assign(in).Drop; math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("shed %v of at most %v: %v, want %v", tt.shed, tt.most, got, tt.want)
		}
	}
}
