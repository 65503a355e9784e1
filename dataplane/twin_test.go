package dataplane_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/dataplane"
)

// twinLoads hands out the 100 percent one by one, as slowly as can be.
func twinLoads(hosts []dataplane.Hosts, factor int, threshold float64) (healthy, degraded []int) {
	healthy, degraded = make([]int, len(hosts)), make([]int, len(hosts))
	cap100 := func(part, of int) int {
		h := 0
		for of > 0 && h < 100 && (h+1)*of <= factor*part {
			h++
		}
		return h
	}
	whole := 0 // of the threshold, as Envoy computes it
	for whole < 100 && float64(whole+1) <= 100*(threshold/100) {
		whole++
	}
	threshold = float64(whole)
	var h, d []int
	total := 0
	for _, p := range hosts {
		n := p.Total - p.Excluded
		h, d = append(h, cap100(p.Healthy, n)), append(d, cap100(p.Degraded, n))
		total += h[len(h)-1] + d[len(d)-1]
	}
	total = min(total, 100)
	panics := 0
	for _, p := range hosts {
		n := p.Total - p.Excluded
		if total < 100 && (n == 0 && threshold > 0 || n > 0 && 100*float64(p.Healthy+p.Degraded)/float64(n) < threshold) {
			panics++
		}
	}
	if panics == len(hosts) && (total > 0 || threshold > 0) {
		return twinPanic(hosts), degraded
	}
	if total == 0 {
		healthy[0] = 100
		return healthy, degraded
	}
	left := 100
	for _, part := range []struct{ from, to []int }{{h, healthy}, {d, degraded}} {
		for p, v := range part.from {
			for left > 0 && (part.to[p]+1)*total <= v*100 {
				part.to[p]++
				left--
			}
		}
	}
	for _, part := range []struct{ from, to []int }{{h, healthy}, {d, degraded}} {
		for p, v := range part.from {
			if v > 0 {
				part.to[p] += left
				return healthy, degraded
			}
		}
	}
	return healthy, degraded
}

func twinPanic(hosts []dataplane.Hosts) []int {
	out := make([]int, len(hosts))
	all, left := 0, 100
	for _, p := range hosts {
		all += p.Total
	}
	if all == 0 {
		out[0] = 100
		return out
	}
	for p := range hosts {
		for (out[p]+1)*all <= 100*hosts[p].Total {
			out[p]++
			left--
		}
	}
	for p := range hosts {
		if hosts[p].Total > 0 {
			out[p] += left
			break
		}
	}
	return out
}

func TestLoadsMatchTheDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := make([]dataplane.Hosts, rapid.IntRange(1, 5).Draw(t, "priorities"))
		for p := range hosts {
			n := rapid.IntRange(0, 30).Draw(t, "hosts")
			g := rapid.IntRange(0, n).Draw(t, "healthy")
			d := rapid.IntRange(0, n-g).Draw(t, "degraded")
			hosts[p] = dataplane.Hosts{Total: n, Healthy: g, Degraded: d, Excluded: rapid.IntRange(0, n-g-d).Draw(t, "excluded")}
		}
		factor := rapid.IntRange(1, 500).Draw(t, "factor")
		threshold := rapid.SampledFrom([]float64{0, 0.5, 29, 33, 33.4, 50, 100}).Draw(t, "threshold")
		healthy, degraded := twinLoads(hosts, factor, threshold)
		got := dataplane.EnvoyLoads(hosts, uint32(factor), threshold)
		for p := range got {
			if got[p].Healthy != healthy[p] || got[p].Degraded != degraded[p] {
				t.Fatalf("priority %d: %+v, the twin says %d and %d", p, got[p], healthy[p], degraded[p])
			}
		}
	})
}
