package fleet

import (
	"math"
	"time"
)

// Histogram counts durations in buckets that grow by a constant ratio, so that
// a quantile is off by at most half of it (3.5%) between 10 us and 100 s. The
// zero Histogram is empty. Not safe for concurrent use.
type Histogram struct {
	counts [histogramBuckets]uint32
	n      uint64
	sum    time.Duration
	most   time.Duration
}

const (
	histogramFirst   = 10 * time.Microsecond
	histogramRatio   = 1.07
	histogramBuckets = 240 // 10 us x 1.07^239 = 106 s
)

var logHistogramRatio = math.Log(histogramRatio)

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	i := 0
	if d > histogramFirst {
		i = min(histogramBuckets-1, int(math.Ceil(math.Log(float64(d)/float64(histogramFirst))/logHistogramRatio)))
	}
	h.counts[i]++
	h.n++
	h.sum += d
	h.most = max(h.most, d)
}

// Merge adds all that o counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.sum += o.sum
	h.most = max(h.most, o.most)
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Mean is the mean, exactly; 0 when nothing was added.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return h.sum / time.Duration(h.n) //nolint:gosec // n fits: it counts calls of Add
}

// Quantile gives the duration that a fraction q of all stays at or below, from
// 0 to 1; 0 when nothing was added.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(min(1, max(0, q)) * float64(h.n)))
	var seen uint64
	for i, c := range h.counts {
		seen += uint64(c)
		if seen >= max(1, rank) {
			// The middle of the bucket, by ratio; nothing exceeds the largest.
			upper := float64(histogramFirst) * math.Pow(histogramRatio, float64(i)-0.5)
			return min(h.most, time.Duration(upper))
		}
	}
	return h.most
}
