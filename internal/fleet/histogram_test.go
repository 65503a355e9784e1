package fleet_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestHistogramAgainstSorting compares every quantile with that of the sorted
// durations, and a merge of two halves with the whole.
func TestHistogramAgainstSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.SliceOfN(rapid.IntRange(10, 90_000_000), 1, 200).Draw(t, "microseconds")
		var whole, left, right fleet.Histogram
		var sorted []time.Duration
		var sum time.Duration
		for i, us := range micros {
			d := time.Duration(us) * time.Microsecond
			sorted = append(sorted, d)
			sum += d
			whole.Add(d)
			if i%2 == 0 {
				left.Add(d)
			} else {
				right.Add(d)
			}
		}
		left.Merge(&right)
		if left != whole {
			t.Fatal("the merge of two halves is not the whole")
		}
		slices.Sort(sorted)
		if whole.Mean() != sum/time.Duration(len(sorted)) || whole.Count() != uint64(len(sorted)) {
			t.Fatalf("mean %v, count %d", whole.Mean(), whole.Count())
		}
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		rank := max(1, int(math.Ceil(q*float64(len(sorted)))))
		want := float64(sorted[rank-1])
		if got := float64(whole.Quantile(q)); math.Abs(got-want) > 0.036*want {
			t.Fatalf("quantile %v = %v, want %v", q, time.Duration(got), time.Duration(want))
		}
	})
}

func TestHistogramEmptyAndExtremes(t *testing.T) {
	var h fleet.Histogram
	if h.Mean() != 0 || h.Quantile(0.99) != 0 || h.Count() != 0 {
		t.Error("an empty histogram is not zero")
	}
	h.Add(-time.Second)
	if h.Quantile(1) != 0 {
		t.Errorf("negative counts as 0, got %v", h.Quantile(1))
	}
	h.Add(time.Hour)
	if got := h.Quantile(1); got > time.Hour || got < 100*time.Second {
		t.Errorf("largest = %v", got)
	}
}
