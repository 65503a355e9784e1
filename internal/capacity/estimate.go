package capacity

import "math"

// Estimate is the estimate for a locality. Capacities are requests/s of one unit.
type Estimate struct {
	// Low and High are the published interval: nine tenths of the probability, each end widened,
	// since the model is not exact. Known is false while the interval is about as wide as the
	// prior's: then the estimate is inconclusive.
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Known  bool    `json:"known"`
	Median float64 `json:"median"`
	// Safe lies below three quarters of the probability. Plans with the median would move load by
	// errors in favour of localities that look large.
	Safe float64 `json:"safe"`
	// Plan is the capacity for plans: Safe if no capacity is declared, otherwise the prior's
	// centre while nothing contradicts it, and nearer to Safe the stronger the evidence. While
	// many requests fail it is Safe: whether servers refuse excess requests shows only when they
	// get less.
	Plan    float64 `json:"plan"`
	Service float64 `json:"service"` // service time, seconds
	// Quick lies below three quarters of the probability of the service time, seconds, if the
	// capacity is Plan.
	Quick float64 `json:"quick"`
	// Errors is the part of the requests that fails whatever the load.
	Errors float64 `json:"errors"`
	// Another is the part of one more request/s that fails at the present rate, refusals
	// of others because of it included.
	Another  float64 `json:"another"`
	Shedding float64 `json:"shedding"` // probability that the servers refuse excess requests
}

// Valid reports whether an estimate that was saved makes sense.
func (e *Estimate) Valid() bool {
	for _, v := range [...]float64{e.Low, e.High, e.Median, e.Safe, e.Plan, e.Service, e.Quick, e.Errors, e.Another, e.Shedding} {
		if !(v >= 0 && v < 1e12) {
			return false
		}
	}
	return e.Errors <= 1 && e.Another <= 1 && e.Shedding <= 1.001 && e.Quick < 1e6
}

const (
	tail        = 0.05 // of the probability beyond either end of the interval
	safeTail    = 0.25 // of the probability below the capacity for plans
	proven      = 2.2  // of the present load: how far above the prior's centre plans may go
	widen       = 1.2  // factor for each end of the interval
	leastGain   = 0.6  // of the width of the prior's interval, above which the estimate is inconclusive
	widest      = 4.0  // from Low to High, the same
	degrees     = 3    // of freedom: the prior's tails are heavy, since declarations may be wrong by any factor
	serviceWide = 1.35 // factor within which two thirds of the probability of the service time lie
)

// belief is the prior as probabilities of the cells.
type belief struct {
	mode [modes]float64
	rate [rates]float64
	time [times]float64
}

func (m *Model) prior(p *Prior) (b belief) {
	b.mode = p.modes()
	fill(b.rate[:], cellsOf(p.PerUnit)-float64(m.low), math.Log2(p.Width)/step)
	fill(b.time[:], cellsOf(p.Service)-float64(m.fast), math.Log2(serviceWide)/step)
	return b
}

// fill makes a row of cells that follow Student's distribution.
func fill(row []float64, centre, width float64) {
	sum := 0.0
	for i := range row {
		z := (float64(i) - centre) / width
		x := 1 + z*z/degrees
		row[i] = 1 / (x * x) // the power is (degrees+1)/2
		sum += row[i]
	}
	for i := range row {
		row[i] /= sum
	}
}

// forget discounts old evidence, and keeps a small probability that the estimate is
// outdated.
func (m *Model) forget(p *Prior) {
	prior := m.prior(p)
	top := float32(math.Inf(-1))
	for mode := range modes {
		for k := range rates {
			m.all[mode][k] += conditional(m.waiting[mode][k][:], prior.time[:]) + conditional(m.failed[mode][k][:], failingPrior[mode][:])
			top = max(top, m.all[mode][k])
		}
	}
	sum := 0.0
	for mode := range modes {
		sum += prior.mode[mode] * weigh(m.all[mode][:], prior.rate[:], top)
	}
	sum = max(sum, 1e-30)
	for mode := range modes {
		fade(m.all[mode][:], top+float32(log(sum)))
	}
}

// conditional makes a row that is given its mode and capacity, and returns the
// evidence for these.
func conditional(row []float32, prior []float64) float32 {
	top := row[0]
	for _, v := range row[1:] {
		if v > top { // faster than max, which looks for NaN
			top = v
		}
	}
	all := top + float32(log(weigh(row, prior, top)))
	fade(row, all)
	return all
}

var logChanged = float32(math.Log(changed))

// fade takes a constant off a row, and lets it forget.
func fade(row []float32, all float32) {
	for i, v := range row {
		row[i] = (1 - forget) * max(v-all, logChanged)
	}
}

// weigh sums a row's likelihood ratios over the prior. top is taken off before.
func weigh(row []float32, prior []float64, top float32) float64 {
	sum := 0.0
	for i, v := range row {
		if d := v - top; d > -30 {
			sum += prior[i] * expNear(float64(d))
		}
	}
	return sum
}

// Estimate returns the present estimate.
func (m *Model) Estimate(p *Prior) Estimate {
	if !m.began || !p.valid() {
		return Estimate{}
	}
	prior := m.prior(p)
	var rate [rates]float64
	var service [times]float64
	var joint [rates][times]float64
	var out Estimate
	counts := ramp(m.failing, negligibleError, leastFailing) // possible refusals count once some requests fail
	sum := 0.0
	for mode := range modes {
		for k := range rates {
			w := prior.mode[mode] * prior.rate[k] * exp(float64(m.all[mode][k]))
			if w < negligible {
				continue
			}
			fails, errors, another := m.failures(mode, k, counts > 0)
			w *= fails
			all := 0.0
			for s, v := range m.waiting[mode][k] {
				x := w * prior.time[s] * expNear(float64(v))
				service[s] += x
				joint[k][s] += x
				all += x
			}
			rate[k] += all
			if mode == shedding {
				out.Shedding += all
			}
			out.Errors += all * errors
			out.Another += all * another
			sum += all
		}
	}
	if !(sum > 0) {
		return Estimate{}
	}
	out.Shedding /= sum
	out.Errors /= sum
	out.Another *= counts / sum
	mean := 0.0
	for s, v := range service {
		mean += float64(s) * v / sum
	}
	out.Service = math.Exp2(step * (float64(m.fast) + mean))
	at := func(q float64) float64 { return math.Exp2(step * (float64(m.low) + quantile(rate[:], q*sum))) }
	out.Low, out.Safe, out.Median, out.High = at(tail)/widen, at(safeTail), at(0.5), at(1-tail)*widen
	part := min(1, interval(rate[:], sum)/interval(prior.rate[:], 1))
	out.Known = part <= leastGain && out.High <= widest*out.Low
	margin := max(0, below(prior.rate[:], cellsOf(p.PerUnit)-float64(m.low))-safeTail)
	margin *= min(1, part/leastGain) * (1 - ramp(m.failing, 0.01, 0.05))
	out.Plan = m.plan(p, &out, at(safeTail+margin))
	out.Quick = math.Exp2(step * (float64(m.fast) + quick(&joint, cellsOf(out.Plan)-float64(m.low))))
	return out
}

// plan returns the capacity for plans. Above the prior's centre it is bounded by the present
// load, and by the quantile that has little probability below it: short queues may mean that
// servers are slow and few, or that they are many. If the rate varies, its peaks need the
// headroom.
func (m *Model) plan(p *Prior, e *Estimate, allowed float64) float64 {
	if p.Assumed {
		return e.Safe
	}
	proof := e.Safe
	if m.varies {
		proof = e.Low
	}
	most := max(p.PerUnit, min(proof, proven*m.carried))
	return min(most, allowed)
}

// quick is the place of the service time below which a quarter of the probability lies, for a
// given capacity: many requests in progress mean that a locality is slow or that it is small, so
// plans with a large capacity need a long service time.
func quick(joint *[rates][times]float64, place float64) float64 {
	var row [times]float64
	sum := 0.0
	for k := range rates {
		near := max(0, 1-math.Abs(float64(k)-place))
		for s, v := range joint[k] {
			row[s] += near * v
			sum += near * v
		}
	}
	return quantile(row[:], safeTail*sum)
}

// negligible is a probability that does not count.
const negligible = 1e-12

// failures sums the probabilities of the ways to fail, given how servers behave and their
// capacity. constant is the mean of the part that fails whatever the load, and another that of
// the part of one more request/s that fails at the present rate, 0 unless it counts: it takes most
// of the time. Nearly none counts as none.
func (m *Model) failures(mode, k int, counts bool) (sum, constant, another float64) {
	used := m.sent / cell(m.low+k)
	for e, v := range m.failed[mode][k] {
		x := failingPrior[mode][e] * expNear(float64(v))
		sum += x
		f := &failing[mode][e]
		constant += x * max(0, f.constant-negligibleError)
		if counts {
			another += x * max(0, f.another(used)-negligibleError)
		}
	}
	sum = max(sum, 1e-30)
	return sum, constant / sum, another / sum
}

// negligibleError is the part of the requests whose failures do not count.
const negligibleError = 0.0005

// leastFailing is the part of recently failed requests from which on the failures of one more
// request count in full.
const leastFailing = 0.003

// interval is the width, in cells, of the published interval of a row with this sum.
func interval(row []float64, sum float64) float64 {
	return quantile(row, (1-tail)*sum) - quantile(row, tail*sum)
}

// below is the sum of a row up to a place; the inverse of quantile.
func below(row []float64, place float64) float64 {
	sum := 0.0
	for i, v := range row {
		sum += v * min(1, max(0, place-float64(i)+0.5))
	}
	return sum
}

// quantile is the place in a row, in cells, up to which its sum is q. Belief is
// spread evenly over each cell.
func quantile(row []float64, q float64) float64 {
	sum := 0.0
	for i, v := range row {
		if sum+v >= q && v > 0 {
			return float64(i) - 0.5 + (q-sum)/v
		}
		sum += v
	}
	return float64(len(row)) - 0.5
}

// Expected is the mean number of requests at the servers of a locality, queues
// included, at a rate and a capacity, both requests/s of all units, a service time
// in seconds, and so many queues.
func Expected(rate, capacity, service, queues float64) float64 {
	if !(rate > 0 && capacity > 0 && service > 0 && queues > 0) {
		return 0
	}
	used := min(rate/capacity, queueFrom)
	return rate*service + variability*queues*math.Pow(used, math.Sqrt(2*(capacity*service/queues+1)))/(1-used)
}
