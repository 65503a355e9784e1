package capacity

import "math"

// Saved is what a later process is told of a model: the evidence about the
// capacity, without what it rests on.
type Saved struct {
	Low      int       `json:"low"`      // place of the first cell, in steps of a quarter octave from 1 request/s
	Evidence []float64 `json:"evidence"` // logarithms of likelihood ratios, from there
	Service  float64   `json:"service"`  // service time, seconds
}

// Save gives what is worth to be kept; nothing before the first window.
func (m *Model) Save(p *Prior) Saved {
	e := m.Estimate(p)
	if !(e.Service > 0) {
		return Saved{}
	}
	out := Saved{Low: m.low, Evidence: make([]float64, rates), Service: e.Service}
	prior := m.prior(p)
	for k := range rates {
		sum := 0.0
		for mode := range modes {
			given := weigh(m.failed[mode][k][:], failingPrior[mode][:], 0) * weigh(m.waiting[mode][k][:], prior.time[:], 0)
			sum += prior.mode[mode] * math.Exp(float64(m.all[mode][k])) * given
		}
		out.Evidence[k] = math.Round(100*math.Log(max(sum, 1e-6))) / 100
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

// Restore makes a model of what was saved; false if that makes no sense.
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
