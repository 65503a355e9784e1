// Package capacity estimates the capacity of the endpoints of a locality from its requests: their
// rate, how many are in progress, and how many fail. It is pure: it knows numbers only, and no
// clock.
package capacity

import "math"

// The grid. Cells are equally wide in the logarithm, and alike for capacity and
// service time, so that a number of servers (their product) has cells, too.
const (
	rates    = 24 // cells of the capacity of one unit
	times    = 15 // cells of the service time: of localities up to six times slower than usual
	faster   = 4  // of these, below the usual one: slower is more usual than faster
	failures = 8  // ways in which requests fail
	modes    = 2
	step     = 0.25 // width of a cell in octaves: 19%
)

// failure is one way in which requests fail: a part of them whatever the load, and by
// refusals of servers in which so many requests may be at once.
type failure struct {
	constant float64
	places   int // 0 = nothing is refused
}

// failing are the ways to fail where servers queue and where they shed, and failingPrior
// their probabilities. How many requests may be in a server is not known, and differs
// between services.
var (
	failing = [modes][failures]failure{
		queueing: {{0.0005, 0}, {0.003, 0}, {0.01, 0}, {0.03, 0}, {0.09, 0}, {0.18, 0}, {0.33, 0}, {0.6, 0}},
		shedding: {{0.0005, 3}, {0.0005, 6}, {0.0005, 12}, {0.0005, 24}, {0.0005, 48}, {0.03, 12}, {0.12, 12}, {0.33, 12}},
	}
	failingPrior = [modes][failures]float64{
		queueing: {0.86, 0.03, 0.03, 0.03, 0.02, 0.01, 0.01, 0.01},
		shedding: {0.18, 0.19, 0.19, 0.19, 0.18, 0.03, 0.02, 0.02},
	}
)

// refused is the part of the requests that a server refuses at a utilization: that of
// a queue of one server with so many places.
func (f *failure) refused(used float64) float64 {
	if f.places <= 0 {
		return 0
	}
	return refused(float64(f.places), power(used, f.places), used)
}

// refused is the same for any number of places; x is the utilization to the power of it.
func refused(places, x, used float64) float64 {
	switch {
	case used <= 0:
		return 0
	case math.Abs(used-1) < 1e-6:
		return 1 / (places + 1)
	default:
		return x * (1 - used) / (1 - x*used)
	}
}

// power is math.Pow for exponents that are positive integers, in a fraction of its time: it makes
// the same multiplications without taking numbers apart.
func power(x float64, n int) float64 {
	out := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out *= x
		}
		x *= x
	}
	return out
}

// fraction returns the fraction of the requests that fails at a utilization.
func (f *failure) fraction(used float64) float64 { return 1 - (1-f.constant)*(1-f.refused(used)) }

// another is the part of one more request/s that fails, with the failures that it causes among
// the others.
func (f *failure) another(used float64) float64 {
	const near = 1.02
	return min(1, max(0, (near*f.fraction(used*near)-f.fraction(used))/(near-1)))
}

// How servers behave that get more than they can serve.
const (
	queueing = iota // requests wait, and fail by timeouts
	shedding        // servers refuse excess requests
)

// sheddingPrior is the probability that servers shed where nothing is known of it, and
// surelySheds how sure others may make of it.
const (
	sheddingPrior = 0.5
	surelySheds   = 0.97
)

// Model is the joint probability of the capacity and the service time of one locality. It holds
// evidence alone, as logarithms of likelihood ratios; the prior is added when it is read, and may
// change at any time. The zero value has no evidence.
//
// Given the capacity, the requests in progress are evidence about the service time, and failures
// about the part that fails anyway, independently of each other: so two small tables for each
// capacity replace one large one.
type Model struct {
	began     bool
	sent      float64 // requests/s of a unit now
	carried   float64 // the same in the newest window with requests
	varies    bool    // the rate varied within the newest window
	failing   float64 // part of the requests that failed recently
	units     float64 // that took requests in the newest window
	hang      hang
	low, fast int // cells at which the grid begins, in steps from 1 request/s, and 1 second

	all     [modes][rates]float32           // of the ways to behave and capacities
	waiting [modes][rates][times]float32    // of service times, given those
	failed  [modes][rates][failures]float32 // of parts that fail anyway, given those
}

// Rules of forgetting.
const (
	recentWeight = 0.3  // of a window in the part of requests that failed recently
	forget       = 0.03 // of the evidence with each window
	changed      = 0.01 // probability that the evidence is no longer valid, with each window
)

// Outcome says how a model used a window.
type Outcome int

// The outcomes.
const (
	Skipped Outcome = iota // it tells nothing: next to nothing was sent, or the locality was dead or hung
	Taken
	Hung // nothing succeeds at a rate that was served: the evidence of the windows in which that began is undone
)

// Observe takes one window as evidence, unless it says nothing about the capacity of a locality.
func (m *Model) Observe(w *Window, p *Prior) Outcome {
	if !w.valid() || !p.valid() {
		return Skipped
	}
	if m.hang.explained(w, m.units) {
		m.undo()
		m.hang.found = w.Failing >= diedWithin
	}
	m.units = w.Units
	switch {
	case m.hang.shows(w):
		m.undo()
		m.units = w.Units
		return Hung
	case w.Rate*w.Seconds < leastWindow || w.dead(p) || m.hang.endsIn(w):
		return Skipped
	}
	m.suspendJudgement(w)
	m.place(p, w.Rate/w.Units)
	c := newCells(m, w, p)
	if w.Sampled > 0 {
		m.wait(w, c)
	}
	m.fail(w, c)
	m.carried, m.varies = w.Rate/w.Units, w.Varies > 0
	m.sent = m.carried
	m.failing += (w.Failing - m.failing) * recentWeight
	m.forget(p)
	return Taken
}

// Idle says that almost nothing was sent for the length of a window: evidence about failures and
// capacity is forgotten as with any other window, so that a locality that was left because
// requests failed there is tried again.
func (m *Model) Idle(p *Prior) {
	if !m.began || !p.valid() {
		return
	}
	m.sent = 0
	m.failing *= 1 - forget
	m.forget(p)
}

// cellsOf is a value's place in steps.
func cellsOf(v float64) float64 { return math.Log2(v) / step }

// withinOctave has the values of the cells of one octave.
var withinOctave = [1 / step]float64{1, math.Sqrt2 / math.Sqrt(math.Sqrt2), math.Sqrt2, math.Sqrt2 * math.Sqrt(math.Sqrt2)}

// cell is the value at a place of so many steps, a power of 2.
func cell(place int) float64 {
	return math.Ldexp(withinOctave[place&(len(withinOctave)-1)], place>>2)
}

// place moves the grid to where the prior and the present rate are. Evidence
// keeps its place; cells that are new have none.
func (m *Model) place(p *Prior, perUnit float64) {
	low := int(math.Round(cellsOf(p.PerUnit))) - rates*5/8
	if perUnit > 0 { // space for twice the present rate, and for less than half of it
		low = max(low, int(math.Ceil(cellsOf(2*perUnit)))-rates+1)
		low = min(low, max(int(math.Floor(cellsOf(perUnit/2.5))), low-4))
	}
	fast := int(math.Round(cellsOf(p.Service))) - faster
	switch {
	case !m.began:
		m.began, m.low, m.fast = true, low, fast
		return
	case abs(low-m.low) < 4 && abs(fast-m.fast) < 3:
		return
	}
	old := *m
	m.low, m.fast = low, fast
	for b := range modes {
		for k := range rates {
			from := max(0, min(rates-1, k+low-old.low)) // beyond the grid its edge
			m.all[b][k], m.failed[b][k] = old.all[b][from], old.failed[b][from]
			for s := range times {
				m.waiting[b][k][s] = old.waiting[b][from][max(0, min(times-1, s+fast-old.fast))]
			}
		}
	}
}

func abs(i int) int { return max(i, -i) }

// Saved is the part of a model that a later process gets: the evidence about the capacity,
// without the windows behind it.
type Saved struct {
	Low      int       `json:"low"`      // place of the first cell, in steps of a quarter octave from 1 request/s
	Evidence []float64 `json:"evidence"` // logarithms of likelihood ratios, from there
	Service  float64   `json:"service"`  // service time, seconds
}

// Save returns the state worth saving, given its estimate; nothing before the first window.
func (m *Model) Save(p *Prior, e *Estimate) Saved {
	if !(e.Service > 0) {
		return Saved{}
	}
	out := Saved{Low: m.low, Evidence: make([]float64, rates), Service: e.Service}
	prior := m.prior(p)
	for k := range rates {
		sum := 0.0
		for mode := range modes {
			given := weigh(m.failed[mode][k][:], failingPrior[mode][:], 0) * weigh(m.waiting[mode][k][:], prior.time[:], 0)
			sum += prior.mode[mode] * exp(float64(m.all[mode][k])) * given
		}
		out.Evidence[k] = math.Round(100*log(max(sum, 1e-6))) / 100
	}
	return out
}

// Valid reports whether saved evidence makes sense.
func (s *Saved) Valid() bool {
	if len(s.Evidence) != rates || s.Low < -400 || s.Low > 400 || !(s.Service > 1e-9 && s.Service < 1e6) {
		return false
	}
	for _, v := range s.Evidence {
		if !(v > -50 && v < 50) {
			return false
		}
	}
	return true
}

// Restore makes a model of saved state; false if the state is invalid.
func Restore(s *Saved) (*Model, bool) {
	if !s.Valid() {
		return nil, false
	}
	m := &Model{began: true, low: s.Low, fast: int(math.Round(cellsOf(s.Service))) - faster}
	for mode := range modes {
		for k := range rates {
			m.all[mode][k] = float32(s.Evidence[k])
		}
	}
	return m, true
}
