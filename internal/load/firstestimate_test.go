package load_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar/internal/load"
)

// TestFirstEstimates logs how far the first estimates are off, and how often the
// interval holds the truth, where utilization lags behind the rate, or is noisy. It
// asserts nothing yet.
func TestFirstEstimates(t *testing.T) {
	for name, x := range map[string]struct{ lag, noise, offset float64 }{
		"plain": {0, 0.03, 0}, "offset": {0, 0.03, 0.1}, "noise": {0, 0.15, 0}, "noise+offset": {0, 0.15, 0.1}, "lag": {4, 0.05, 0}, "lag+offset": {4, 0.05, 0.15},
	} {
		var first []float64
		told, right := 0, 0
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 3))
			l := newLearning()
			capacity := 100 * math.Exp2(4*r.Float64())
			path, lagged := 0.2+0.5*r.Float64(), 0.0
			was := false
			for range 200 {
				path = min(0.9, max(0.1, path*math.Exp(0.05*r.NormFloat64())))
				rate := path * capacity
				rate = max(0.2, rate+math.Sqrt(rate/5)*r.NormFloat64())
				u := x.offset + (1-x.offset)*rate/capacity
				if lagged == 0 {
					lagged = u
				}
				lagged += (u - lagged) / (1 + x.lag)
				got := l.window(rate, min(1, max(0.01, lagged*(1+x.noise*r.NormFloat64()))))
				if got.State == load.CapacityLearned {
					told++
					if 4*got.Low <= capacity && capacity <= 4*got.High {
						right++
					}
					if !was {
						was = true
						first = append(first, 4*got.PerUnit/capacity)
					}
				}
			}
		}
		slices.Sort(first)
		n := len(first)
		t.Logf("%-13s %3d learned, first estimate %.2f %.2f %.2f max %.2f; right %.0f%%", name, n, first[n/20], first[n/2], first[n*19/20], first[n-1], 100*float64(right)/float64(told))
	}
}
