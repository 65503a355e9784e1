package assign_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// TestSharesConverge steps demand once and keeps it: the shares reach the
// target in as many ticks as the largest shift needs, and never pass it.
func TestSharesConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.service.Mode, w.service.MaxShed = isobar.ModeFull, 0
		for i := range w.clients {
			w.clients[i].at = isobar.Locality{Region: fmt.Sprintf("r%d", i%3), Zone: fmt.Sprintf("z%d", i)}
			w.clients[i].demand = math.Exp(rapid.Float64Range(1, 7).Draw(t, "before"))
		}
		_, start, _ := w.next()
		for i := range w.clients {
			w.clients[i].demand = math.Exp(rapid.Float64Range(1, 7).Draw(t, "after"))
		}
		in := w.input()
		most := 0.0
		for i, s := range in.Sources {
			most = max(most, away(start.Sources[i].Shares, s.Target))
		}
		low, high := envelope(in, start)
		for range int(math.Ceil(most/10)) + 3 { // what leaves stays for up to 3 ticks
			in, out, _ := w.next()
			for i := range in.Sources {
				for l, v := range out.Sources[i].Shares {
					if v < low[i][l]-within(in.Sources[i]) || v > high[i][l]+within(in.Sources[i]) {
						dumpShares(t, in, out)
						t.Fatalf("source %d, site %d: %v overshoots %v to %v", i, l, v, low[i][l], high[i][l])
					}
				}
			}
		}
		for i, s := range in.Sources {
			for l, v := range w.prev.Sources[i].Shares {
				if d := math.Abs(v - s.Target[l]); d > within(s) {
					dumpShares(t, in, w.prev)
					t.Fatalf("source %d, site %d: %.2f points from the target after %.1f points", i, l, 100*d, most)
				}
			}
		}
	})
}

// TestNoSiteStaysAboveItsLimit steps demand once among many localities, of which
// most get less than a point of anybody's traffic: after the time that moving
// all of it takes, each carries what it may or what is wanted of it.
func TestNoSiteStaysAboveItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawManyPlaces(t)
		w.demand(t, "before")
		w.next()
		w.demand(t, "after")
		var in assign.Input
		for range 25 { // 100 points, 10 a tick; and what leaves stays for up to 3
			var bad []invariant.Violation
			if in, _, bad = w.next(); len(bad) > 0 {
				t.Fatal(bad)
			}
		}
		want, rounding := make([]float64, len(in.Sites)), 0.0
		for i := range w.prev.Sources {
			for l, v := range w.prev.Sources[i].Want {
				want[l] += in.Sources[i].Demand * v
			}
			rounding += in.Sources[i].Demand / isobar.WeightScale
		}
		for l, y := range w.prev.Load {
			if most := max(in.Sites[l].Limit(), want[l]); y > 1.006*most+rounding { // suppression leaves half a percent
				t.Fatalf("%s stays at %.2f, its limit is %.2f and %.2f are wanted there", in.Sites[l].Group.Locality, y, in.Sites[l].Limit(), want[l])
			}
		}
	})
}

// drawManyPlaces makes a world of 20 to 100 localities of very different size.
func drawManyPlaces(t *rapid.T) *world {
	w := &world{service: isobar.Service{Name: "svc", Mode: isobar.ModeFull}}
	for i := range rapid.IntRange(20, 100).Draw(t, "places") {
		w.places = append(w.places, place{
			at:      isobar.Locality{Region: fmt.Sprintf("r%d", i/40), Zone: fmt.Sprintf("z%03d", i)},
			nominal: math.Exp(rapid.Float64Range(2, 7).Draw(t, "nominal")), ceiling: 0.8,
			health: []isobar.HealthStatus{isobar.Healthy}, weights: []uint32{1},
		})
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "clients") {
		w.clients = append(w.clients, client{at: isobar.Locality{Region: fmt.Sprintf("r%d", i%3), Zone: fmt.Sprintf("z%03d", i)}})
	}
	return w
}

// demand gives the clients demand that fills the service to a degree that is
// drawn, and more than that.
func (w *world) demand(t *rapid.T, when string) {
	limits, all := 0.0, 0.0
	for i := range w.places {
		limits += w.places[i].ceiling * w.places[i].nominal
	}
	for i := range w.clients {
		w.clients[i].demand = math.Exp(rapid.Float64Range(0, 3).Draw(t, when))
		all += w.clients[i].demand
	}
	fill := rapid.SampledFrom([]float64{0.1, 0.5, 0.8, 0.95, 0.999, 1.3}).Draw(t, "fill")
	for i := range w.clients {
		w.clients[i].demand *= fill * limits / all
	}
}

// within is how close to the target shares have to come: a point, and one more
// or all that the target wants of sites below the entry threshold, which others
// get instead.
func within(s assign.Source) float64 {
	small := 0.0
	for _, v := range s.Target {
		if v < 0.01 {
			small += v
		}
	}
	return 0.0102 + max(0.01, small)
}

func dumpShares(t *rapid.T, in assign.Input, out *assign.Result) {
	for l, s := range in.Sites {
		t.Logf("%s: limit %.1f, load %.1f", s.Group.Locality, s.Limit(), out.Load[l])
	}
	for i, s := range in.Sources {
		t.Logf("%q: demand %.1f, target %.4f, want %.4f, now %.4f, was %v, %v", s.Locality, s.Demand, s.Target, out.Sources[i].Want, out.Sources[i].Shares,
			sharesOf(in.Previous, s.Locality), out.Sources[i].Reasons)
	}
}

// away is the shift between two sets of shares, in points.
func away(a, b []float64) float64 {
	d := 0.0
	for l := range a {
		d += math.Abs(a[l]-b[l]) / 2
	}
	return 100 * d
}

// envelope returns the range between where each share is and where it should be.
func envelope(in assign.Input, start *assign.Result) (low, high [][]float64) {
	for i, s := range in.Sources {
		lo, hi := make([]float64, len(s.Target)), make([]float64, len(s.Target))
		for l, v := range s.Target {
			lo[l], hi[l] = min(v, start.Sources[i].Shares[l]), max(v, start.Sources[i].Shares[l])
		}
		low, high = append(low, lo), append(high, hi)
	}
	return low, high
}
