package sim

import "math"

// histogram counts latencies in bins that grow by 2%.
type histogram struct {
	bins  [binCount]float64
	total float64
}

const (
	binCount = 820
	binLow   = 0.01 // ms: everything below is in the first bin
	binGrow  = 1.02
)

var binScale = 1 / math.Log(binGrow)

func (h *histogram) add(ms, weight float64) {
	i := 0
	if ms > binLow {
		i = min(binCount-1, int(math.Log(ms/binLow)*binScale))
	}
	h.bins[i] += weight
	h.total += weight
}

func (h *histogram) merge(o *histogram) {
	for i := range h.bins {
		h.bins[i] += o.bins[i]
	}
	h.total += o.total
}

// quantile gives the latency, ms, below which a fraction of the weight lies; 0
// without any.
func (h *histogram) quantile(q float64) float64 {
	if h.total <= 0 {
		return 0
	}
	sum := 0.0
	for i := range h.bins {
		if sum += h.bins[i]; sum >= q*h.total {
			return binLow * math.Pow(binGrow, float64(i)+0.5)
		}
	}
	return binLow * math.Pow(binGrow, binCount)
}

// samplesPerStep is at how many quantiles a step samples the time that requests
// stay at an endpoint; the next steps fill the gaps.
const samplesPerStep = 2

// exponentialAt gives, for one step, quantiles of the exponential distribution
// with mean 1, stratified: over many steps every quantile has its turn.
func exponentialAt(step uint64) (out [samplesPerStep]float64) {
	offset := 0.0
	for f := 0.5; step > 0; step, f = step>>1, f/2 { // van der Corput's sequence
		if step&1 == 1 {
			offset += f
		}
	}
	for i := range out {
		out[i] = -math.Log(1 - (float64(i)+offset)/samplesPerStep)
	}
	return out
}
