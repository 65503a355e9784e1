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

// BenchmarkElementary compares the functions with those of package math.
func BenchmarkElementary(b *testing.B) {
	for _, x := range []struct {
		name string
		f    func(float64) float64
		at   float64
	}{{"log/math", math.Log, 1.37}, {"log/table", log, 1.37}, {"exp/math", math.Exp, -0.02}, {"exp/table", exp, -0.02}} {
		b.Run(x.name, func(b *testing.B) {
			sum := 0.0
			for i := range b.N {
				sum += x.f(float64(i&1023+1) * x.at)
			}
			if math.IsNaN(sum) {
				b.Fatal("the sum is no number")
			}
		})
	}
}

func TestCell(t *testing.T) {
	for i := -400; i <= 400; i++ {
		if got, want := cell(i), math.Exp2(step*float64(i)); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("cell(%d) = %v, want %v", i, got, want)
		}
	}
}
