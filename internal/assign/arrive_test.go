package assign_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// TestSharesArriveWhateverWasBefore lets something happen to a random world for a
// while and then leaves it alone: nobody stays far from what is wanted, and no
// site well above what it may carry, because somebody else can't move or because
// steps are damped.
func TestSharesArriveWhateverWasBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 12 {
			w.change(t)
			w.settle()
			w.next()
		}
		w.service.Mode, w.trigger, w.hold = isobar.ModeFull, assign.Tick, ""
		if w.isolation == "nearest" {
			w.isolation = "" // the stand-in for the solver does not see when the nearest region is too small
		}
		w.gain = rapid.SampledFrom([]float64{0, 0.25, 0.125}).Draw(t, "gain")
		var in assign.Input
		for range 60 {
			in, _, _ = w.next()
		}
		out, all, some := w.prev, 0.0, false
		want, stuck := make([]float64, len(out.Sites)), make([]float64, len(out.Sites))
		for l := range out.Sites {
			some = some || (out.Sites[l].Capacity > 0 && !out.Sites[l].Unreachable)
		}
		if !some {
			return
		}
		for i := range out.Sources {
			s := &out.Sources[i]
			all += s.Demand
			for l, v := range s.Want {
				want[l] += s.Demand * (1 - out.Drop) * v
			}
		}
		for i := range out.Sources {
			s, lacks, barred := &out.Sources[i], 0.0, 0.0
			for l, v := range s.Want {
				// Where bars make more wanted of a site than it may carry, nobody enters.
				if want[l] <= math.Max(out.Sites[l].Limit(), out.Load[l])*(1+1e-6) {
					lacks += math.Max(0, v-s.Shares[l])
				} else {
					barred += math.Max(0, v-s.Shares[l])
				}
			}
			for l, v := range s.Want { // and what can't enter there can't leave the others
				stuck[l] += s.Demand * (1 - out.Drop) * math.Min(barred, math.Max(0, s.Shares[l]-v))
			}
			// What is kept back for calm is less than a point at each site.
			if s.Demand > 0 && lacks > 0.035 {
				dumpShares(t, in, out)
				t.Fatalf("%s lacks %.1f points where it wants to be", s.Source, 100*lacks)
			}
		}
		for l, y := range out.Load {
			if limit := out.Sites[l].Limit(); y > 1.03*math.Max(limit, want[l])+stuck[l]+0.001*all {
				dumpShares(t, in, out)
				t.Fatalf("%s stays at %.2f, its limit is %.2f and %.2f are wanted there", out.Sites[l].Group.Locality, y, limit, want[l])
			}
		}
	})
}
