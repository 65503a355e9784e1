package samples

import (
	"math"
	"time"
)

// axis is the time of one resolution: slots of step seconds, of which the newest
// points are kept. Slot n begins at n*step seconds since 1970.
type axis struct {
	step   int64
	points int
	any    bool
	first  int64 // oldest slot that was ever written
	last   int64 // newest
}

func newAxis(step, span time.Duration, scale uint) axis {
	return axis{step: int64(step/time.Second) << scale, points: int(span/step) >> scale}
}

func (a *axis) slot(seconds int64) int64 {
	s := seconds / a.step
	if seconds%a.step < 0 {
		s--
	}
	return s
}

// place is where a slot stands in memory.
func (a *axis) place(slot int64) int {
	p := int64(a.points)
	return int((slot%p + p) % p)
}

// begin is the oldest slot that is kept.
func (a *axis) begin() int64 { return max(a.first, a.last-int64(a.points)+1) }

func (a *axis) holds(slot int64) bool { return a.any && slot >= a.begin() && slot <= a.last }

// rescale changes the steps by one doubling or halving, and converts what is kept: two
// slots become their mean, or one becomes two.
func (r *Ring) rescale(scale uint) {
	spans := [2]time.Duration{FineSpan, CoarseSpan}
	steps := [2]time.Duration{FineStep, CoarseStep}
	for i := range r.axes {
		old, next := r.axes[i], newAxis(steps[i], spans[i], scale)
		if old.any {
			next.any, next.first, next.last = true, next.slot(old.first*old.step), next.slot(old.last*old.step+old.step-1)
		}
		for _, s := range r.services { //isobar:sorted each by itself
			if s.codes[i] != nil {
				s.codes[i] = s.converted(i, &old, &next)
			}
		}
		r.axes[i] = next
	}
	r.scale = scale
}

// converted has the rows that the codes have: allocate adds those of new localities.
func (s *series) converted(i int, old, next *axis) []uint16 {
	rows := len(s.codes[i]) / old.points
	out := make([]uint16, next.points*rows)
	if !old.any {
		return out
	}
	for slot := next.begin(); slot <= next.last; slot++ {
		from, to := old.slot(slot*next.step), old.slot(slot*next.step+next.step-1)
		place := next.place(slot) * rows
		for row := range rows {
			var m mean
			for x := from; x <= to; x++ {
				if old.holds(x) {
					m.add(s.codes[i][old.place(x)*rows+row])
				}
			}
			out[place+row] = m.code()
		}
	}
	return out
}

// A code holds a value in two bytes: 0 is a missing one, 1 is zero, and others are
// logarithms in steps of a 1,024th of an octave, from 2^-20 (a millionth) to 2^43.9.
// A value is exact to 0.04%.
const (
	codeZero   = 1
	codeLow    = 2
	codeOctave = 1024
	codeMin    = -20
)

func encode(x float64) uint16 {
	if math.IsNaN(x) {
		return 0
	}
	if x < math.Ldexp(1, codeMin) {
		return codeZero
	}
	return uint16(min(math.Round((math.Log2(x)-codeMin)*codeOctave)+codeLow, math.MaxUint16))
}

// decode returns NaN for a missing value.
func decode(c uint16) float64 {
	switch c {
	case 0:
		return math.NaN()
	case codeZero:
		return 0
	default:
		return math.Exp2(float64(c-codeLow)/codeOctave + codeMin)
	}
}

// mean is the mean of the values that are not missing.
type mean struct {
	sum  float64
	n    int
	same uint16 // the code of all of them, 0 = they differ or there are none
}

func (m *mean) add(c uint16) {
	if c == 0 {
		return
	}
	if m.n == 0 {
		m.same = c
	} else if m.same != c {
		m.same = 0
	}
	m.sum += decode(c)
	m.n++
}

func (m *mean) code() uint16 {
	switch {
	case m.n == 0:
		return 0
	case m.same != 0:
		return m.same
	default:
		return encode(m.sum / float64(m.n))
	}
}
