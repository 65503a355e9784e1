package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestLogAndExpAreThoseOfMath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		x := math.Exp(r.Float64()*1400 - 700)
		if got, want := log(x), math.Log(x); math.Abs(got-want) > 1e-11 {
			t.Fatalf("log(%v) = %v, want %v", x, got, want)
		}
		x = 1 + (r.Float64()-0.5)/100
		if got, want := log(x), math.Log(x); math.Abs(got-want) > 1e-11 {
			t.Fatalf("log(%v) = %v, want %v", x, got, want)
		}
		x = r.Float64()*1500 - 750
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-11*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{0, -1, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, 1e-310, math.MaxFloat64, 1, 2, 0x1p-1022} {
		if got, want := log(x), math.Log(x); got != want && !(math.Abs(got-want) < 1e-11) && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("log(%v) = %v, want %v", x, got, want)
		}
		if got, want := exp(x), math.Exp(x); got != want && !(math.Abs(got-want) <= 1e-11*want) && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
}

var sink float64

func BenchmarkLog(b *testing.B) {
	var xs [1024]float64
	for i := range xs {
		xs[i] = float64(i)*1.37 + 0.01
	}
	b.Run("math", func(b *testing.B) {
		for i := range b.N {
			sink += math.Log(xs[i&1023])
		}
	})
	b.Run("table", func(b *testing.B) {
		for i := range b.N {
			sink += log(xs[i&1023])
		}
	})
}

func BenchmarkExp(b *testing.B) {
	var xs [1024]float64
	for i := range xs {
		xs[i] = -float64(i) / 50
	}
	b.Run("math", func(b *testing.B) {
		for i := range b.N {
			sink += math.Exp(xs[i&1023])
		}
	})
	b.Run("table", func(b *testing.B) {
		for i := range b.N {
			sink += exp(xs[i&1023])
		}
	})
}

func TestCell(t *testing.T) {
	for i := -400; i <= 400; i++ {
		if got, want := cell(i), math.Exp2(step*float64(i)); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("cell(%d) = %v, want %v", i, got, want)
		}
	}
}
