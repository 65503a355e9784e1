package solver_test

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/solver"
)

// distance is how much load two answers place differently, as a share of it.
func distance(a, b [][]float64) float64 {
	moved, total := 0.0, 0.0
	for i := range a {
		for l := range a[i] {
			moved += math.Abs(a[i][l] - b[i][l])
			total += a[i][l]
		}
	}
	return moved / 2 / total
}

func TestOwnAnswerStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.3)
		first := must(t, s)
		s.Previous, s.WarmPrices = first.Flows, first.Prices
		second := must(t, s)
		if !reflect.DeepEqual(first.Flows, second.Flows) {
			t.Fatalf("flows moved by %v without a cause", distance(first.Flows, second.Flows))
		}
	})
}

// What was pulled towards an older answer stays too.
func TestPulledAnswerStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 1.3)
		first := must(t, s)
		for i := range s.Demand {
			s.Demand[i] *= rapid.Float64Range(0.8, 1.1).Draw(t, "change")
		}
		s.Previous = first.Flows
		second := must(t, s)
		s.Previous = second.Flows
		third := must(t, s)
		if d := distance(second.Flows, third.Flows); d > 1e-7 {
			t.Fatalf("flows moved by %v without a cause", d)
		}
	})
}

func TestSmallChangeMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t, 0.85)
		first := must(t, s)
		if first.CeilingScale > 1 {
			return
		}
		for i := range s.Demand {
			s.Demand[i] *= 1 + rapid.Float64Range(-0.005, 0.005).Draw(t, "change")
		}
		s.Previous = first.Flows
		second := must(t, s)
		if d := distance(first.Flows, second.Flows); second.CeilingScale == 1 && d > 0.05 {
			t.Fatalf("demand changed by at most 0.5%%, flows moved by %.2f%%", 100*d)
		}
	})
}

// Two localities that cost the same: the previous split stays, and without one
// headroom decides.
func TestTies(t *testing.T) {
	base := solver.Service{
		Demand:     []float64{100},
		Localities: []solver.Locality{{Capacity: 1000}, {Capacity: 3000}, {Capacity: 1000}},
		Latency:    [][]float64{{5, 5.004, 9}},
	}
	tests := []struct {
		name     string
		previous []float64
		want     []float64
	}{
		{"headroom without previous", nil, []float64{25, 75, 0}},
		{"previous stays", []float64{60, 40, 0}, []float64{60, 40, 0}},
		{"previous of other demand counts by shares", []float64{6, 4, 0}, []float64{60, 40, 0}},
		{"a source that had nothing", []float64{0, 0, 0}, []float64{100, 0, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := base
			if test.previous != nil {
				s.Previous = [][]float64{test.previous}
			}
			sol := solveOne(t, s)
			for l, want := range test.want {
				if math.Abs(sol.Flows[0][l]-want) > 1e-6 {
					t.Errorf("flows %v, want %v", sol.Flows[0], test.want)
				}
			}
		})
	}
}

// A previous answer that is too dear is left only as far as it must be.
func TestNearestOfTheGoodOnes(t *testing.T) {
	s := solver.Service{
		Demand:     []float64{100, 100},
		Localities: []solver.Locality{{Capacity: 1000}, {Capacity: 1000}, {Capacity: 1000}},
		Latency:    [][]float64{{5, 5, 9}, {5, 5, 9}},
		Previous:   [][]float64{{70, 20, 10}, {10, 90, 0}},
	}
	sol := solveOne(t, s)
	// Source 0 brings the 10 back from far, in equal parts: the nearest point.
	want := [][]float64{{75, 25, 0}, {10, 90, 0}}
	for i := range want {
		for l := range want[i] {
			if math.Abs(sol.Flows[i][l]-want[i][l]) > 1 {
				t.Errorf("flows %v, want about %v", sol.Flows, want)
			}
		}
	}
	if sol.ExcessMS > tieMS {
		t.Errorf("excess %v ms", sol.ExcessMS)
	}
}
