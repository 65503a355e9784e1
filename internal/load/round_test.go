package load_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// twinOff is half the distance between what landed and what was planned, less
// one standard deviation of each locality's observed requests, in requests.
func twinOff(landed map[isobar.Locality]float64, planned shares, total float64) float64 {
	off := 0.0
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		deviation := math.Sqrt(total * planned[l] * (1 - planned[l]))
		if d := math.Abs(landed[l]-planned[l]*total) - deviation; d > 0 {
			off += d
		}
	}
	return min(off/2, total)
}

func drawShares(t *rapid.T, name string) shares {
	weights := map[isobar.Locality]int{}
	sum := 0
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		weights[l] = rapid.IntRange(0, 10).Draw(t, name)
		sum += weights[l]
	}
	if sum == 0 {
		return shares{zoneA: 1}
	}
	out := shares{}
	for l, w := range weights {
		if w > 0 {
			out[l] = float64(w) / float64(sum)
		}
	}
	return out
}

// TestRoundsTellWhereRequestsLand: whatever a source is told and does, a round
// tells how many of its requests landed elsewhere, as a twin counts them.
func TestRoundsTellWhereRequestsLand(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		planned, does := drawShares(rt, "planned"), drawShares(rt, "does")
		src := &worldSource{at: zoneA, nodes: rapid.IntRange(1, 5).Draw(rt, "nodes"), rate: rapid.Float64Range(0, 200).Draw(rt, "rate"), shares: planned}
		src.obey = func(int) map[isobar.Locality]float64 { return does }
		w := newWorld(t, src)
		var f load.Findings
		total := 0.0
		for range 10 {
			f = w.run(1)
			n := 0.0
			landed := map[isobar.Locality]float64{}
			for _, l := range src.landings(w, does).Localities {
				landed[*l.Locality] += float64(l.Issued) * float64(src.nodes)
				n += float64(l.Issued) * float64(src.nodes)
			}
			total += n
			if len(f.Rounds) == 0 {
				if n >= 50 && w.now.After(start.Add(2*interval)) {
					rt.Fatalf("%v requests of a window are not judged", n)
				}
				continue
			}
			r := f.Rounds[0]
			if r.Source != zoneA || r.Requests < 50 || r.Off < 0 || r.Off > r.Requests {
				rt.Fatalf("%+v", r)
			}
			if n < 50 {
				continue // several windows together
			}
			if want := twinOff(landed, planned, n); math.Abs(r.Off-want) > 1e-6*n {
				rt.Fatalf("planned %v, did %v: %v of %v requests are off plan, want %v", planned, does, r.Off, r.Requests, want)
			}
		}
		if n := len(f.Rounds); n > 1 {
			rt.Fatalf("%d rounds of one source", n)
		}
	})
}

// TestRoundsWaitForAcknowledgement: what lands before clients have accepted
// their shares is not held against these.
func TestRoundsWaitForAcknowledgement(t *testing.T) {
	src := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 1}}
	w := newWorld(t, src)
	if f := w.run(3); len(f.Rounds) != 1 || f.Rounds[0].Off != 0 {
		t.Fatalf("clients that obey: %+v", f.Rounds)
	}
	old := src.shares
	src.obey = func(int) map[isobar.Locality]float64 { return old }
	w.assign(src, shares{zoneB: 1})
	src.acked = time.Time{} // not yet
	for range 5 {
		for _, r := range w.run(1).Rounds {
			t.Fatalf("held against shares that nobody has: %+v", r)
		}
	}
	src.acked = w.now
	f := w.run(2)
	if len(f.Rounds) != 1 || f.Rounds[0].Off < 0.9*f.Rounds[0].Requests {
		t.Fatalf("clients that do not obey: %+v", f.Rounds)
	}
}
