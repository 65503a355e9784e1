package load

import (
	"math"
	"time"
)

// variability is how far a source's demand varies, faster than decisions follow.
//
// One window of one client says little: its counts fluctuate anyway. But clients report at
// different times, so that all windows together show the moving average of the demand of one
// report interval at many moments. Changes that clients have in common at one moment are changes
// of the source's demand; changes of each client alone are chance. So each tick is divided into
// short spans, the clients that reported in a span are divided into two halves, and the mean
// product of the deviations of both halves is the variance of their common demand: independent
// chance is 0 on average, whatever its size.
type variability struct {
	ratio float64 // of the clients' rates to their own means, smoothed; 0 = not known

	ticks  int                 // that told something, up to variabilityMemory
	at     int                 // next place in recent
	mean   float64             // of the mean squares that they told
	drift  float64             // and of by how much all were above the expected rate
	next   float64             // mean covariance with the windows before
	chance float64             // mean square of the variance that a tick would have by chance
	recent [blockTicks]float64 // mean squares of the last ticks
	blocks float64             // mean of their means
	square float64             // and of the squares of these
	mute   int                 // snapshots in a row that told nothing
	seen   float64             // standard deviation, as a fraction of demand; 0 = none that is beyond doubt
}

const (
	// slowIntervals is the time constant of the expected rate, in intervals: about the time it
	// takes to see a step of demand and to pace the shares for it.
	slowIntervals = 5.0

	leastSpans        = 4  // spans of a report interval, where few clients report
	mostSpans         = 16 // and where many do
	spanClients       = 3  // clients in a span, about
	variabilityMemory = 24 // ticks that the means reach back, about
	variabilityTicks  = 8  // ticks before anything is said
	blockTicks        = 4  // ticks that are taken together to distinguish repeated changes from single ones
	leastHabits       = 4  // windows that a client's own mean takes at least

	// usualWindows is how many windows a client's own mean reaches back: the plan follows slower
	// changes, and a client that sends more from now on soon has a mean that includes it.
	usualWindows = 16

	// Variability is seen where the mean variance exceeds chance by so many standard errors, and
	// repeats: its standard error includes the differences between blocks of ticks, so a step of
	// demand, or a crowd that comes once, does not count. It ends once the excess is below half
	// of that.
	beyondChance, againAndAgain = 4.0, 2.5
	// otherHabits is how many times more, or less, than usual is sent for a while
	// where other things have become usual.
	otherHabits = 10.0

	// leastVariability is the least variability worth planning for, and goneVariability the value
	// below which it ends.
	leastVariability, goneVariability = 0.08, 0.05
	// variabilityStep is the least change of the variability that snapshots show, as a fraction of it.
	variabilityStep = 0.15
)

// moment sums the rates of the clients whose windows ended in it, in two halves: rates above the
// expected rate, now and in their previous windows, requests/s, and the squares of those now.
type moment struct {
	count                          int
	means, above, aboveBy, squares [2]float64
}

// moments is memory for those of a source.
type moments [2 * mostSpans]moment

// observeVariability adds the windows that came since the last snapshot.
func (s *source) observeVariability(now time.Time, interval, wall time.Duration, memory *moments) {
	parts := min(max(leastSpans, len(s.flows)/spanClients), mostSpans)
	length := max(1, interval/time.Duration(parts))
	spans := memory[:2*parts] // of two intervals: ticks and reports may be late
	clear(spans)
	sent, usual := 0.0, 0.0
	expected := s.variability.ratio
	for _, f := range s.flows {
		rate, mean := f.window.rate(), f.usual
		if f.news > 0 {
			f.accustom()
		}
		if !f.own || f.limit > 0 || f.extended || f.habits < leastHabits || mean < negligible {
			f.above = 0
			continue
		}
		sent += rate
		usual += mean
		if f.news == 0 || expected <= 0 {
			continue
		}
		above := rate/(mean*expected) - 1
		if at := int(max(0, now.Sub(f.window.until)) / length); at < len(spans) && f.window.length <= 2*interval {
			x := &spans[at]
			half := x.count % 2
			x.count++
			x.means[half] += mean
			x.above[half] += mean * above
			x.squares[half] += mean * above * mean * above
			x.aboveBy[half] += mean * f.above
		}
		f.above = above
	}
	if usual <= 0 {
		s.variability.ratio = 0
		return
	}
	s.variability.record(spans)
	if expected <= 0 {
		s.variability.ratio = sent / usual
		return
	}
	s.variability.ratio += (sent/usual - expected) * gain(wall, slowIntervals, interval)
	if s.variability.ratio < 1/otherHabits || s.variability.ratio > otherHabits {
		s.unaccustom()
	}
}

// unaccustom forgets the usual rate. After demand has left, the rate would be below the usual one
// for a long time, and above it while that falls, which looks like variability. And beside demand
// that has returned nothing else would be seen for as long.
func (s *source) unaccustom() {
	s.variability = variability{}
	for _, f := range s.flows {
		f.habits, f.above = 0, 0
	}
}

// accustom moves the client's usual rate towards its newest window, unless the window was too
// short to mean anything alone.
func (f *flow) accustom() {
	rate := f.window.rate()
	switch {
	case !f.own || f.limit > 0 || f.extended:
		return
	case f.habits == 0:
		f.usual = 0
	}
	f.habits = min(f.habits+1, usualWindows)
	f.usual += (rate - f.usual) / float64(f.habits)
}

// record adds a tick to the means.
func (v *variability) record(spans []moment) {
	product, next, chance, weight, above, mean := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range spans {
		x := &spans[i]
		product += x.above[0] * x.above[1]
		next += (x.above[0]*x.aboveBy[1] + x.above[1]*x.aboveBy[0]) / 2
		chance += x.squares[0] * x.squares[1]
		weight += x.means[0] * x.means[1]
		above += x.above[0] + x.above[1]
		mean += x.means[0] + x.means[1]
	}
	if weight <= 0 {
		if v.mute++; v.mute >= variabilityMemory {
			*v = variability{ratio: v.ratio}
		}
		return
	}
	v.mute = 0
	v.recent[v.at] = product / weight
	v.at = (v.at + 1) % blockTicks
	v.ticks = min(v.ticks+1, variabilityMemory)
	part := 1 / float64(v.ticks)
	v.mean += (product/weight - v.mean) * part
	v.next += (next/weight - v.next) * part
	v.drift += (above/mean - v.drift) * part
	v.chance += (chance/weight/weight - v.chance) * part
	if v.ticks >= blockTicks {
		block := 0.0
		for _, square := range v.recent {
			block += square / blockTicks
		}
		part = 1 / float64(v.ticks-blockTicks+1)
		v.blocks += (block - v.blocks) * part
		v.square += (block*block - v.square) * part
	}
	v.judge()
}

// judge derives the variability from the means.
func (v *variability) judge() {
	if v.ticks < variabilityTicks {
		return // the result of an earlier process counts until then
	}
	variance := v.variance()
	if variance <= 0 {
		v.seen = 0
		return
	}
	need, least := 1.0, leastVariability
	if v.seen > 0 {
		need, least = 0.5, goneVariability
	}
	n := float64(v.ticks)
	chance := math.Sqrt(v.chance / n)
	once := math.Sqrt(max(0, v.square-v.blocks*v.blocks) * blockTicks / n)
	now := v.deviation()
	switch {
	case variance < need*beyondChance*chance || variance < need*againAndAgain*once || now < least:
		v.seen = 0
	case math.Abs(now-v.seen) > variabilityStep*v.seen:
		v.seen = now
	}
}

// recall takes over the result of an earlier process.
func (v *variability) recall(seen float64) {
	if seen >= goneVariability && seen <= 1 { // refuses NaN too
		v.seen = seen
	}
}

// variance is that of the clients' common demand. Demand that keeps growing, or shrinking, is
// above or below the expected rate all the time: that is no variability.
func (v *variability) variance() float64 { return v.mean - v.drift*v.drift }

// deviation is the standard deviation of the demand itself, of which windows show a moving
// average. How much that hides follows from the correlation of a window with the previous one, as
// for a sine: if it is opposite, the period is two windows, and the real deviation is 1.57 times
// the visible one. Changes as fast as a window can't be seen.
func (v *variability) deviation() float64 {
	variance := v.variance()
	follows := max(-1, min(1, (v.next-v.drift*v.drift)/variance))
	x := math.Acos(follows) / 2 // pi times a window's part of the period
	hidden := 1.0
	if x > 1e-3 {
		hidden = math.Sin(x) / x
	}
	return min(1, math.Sqrt(variance)/hidden)
}
