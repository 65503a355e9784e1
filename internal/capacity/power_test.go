package capacity

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Estimates have the same bits as with math.Pow: recordings are replayed to the byte.
func TestPower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-6, 100).Draw(t, "x")
		for _, ways := range failing {
			for _, f := range ways {
				if got, want := power(x, f.places), math.Pow(x, float64(f.places)); got != want {
					t.Fatalf("%v to the power of %d is %v, want %v", x, f.places, got, want)
				}
			}
		}
	})
}
