package assign

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// suppress keeps what is published for the sources whose shares should move by
// less than a point, as long as no site's load changes much by that. It looks
// at where the shares are heading, not at the step of this tick: so small steps
// on a long way are published, and small moves add up until they count.
func suppress(p *pacing, moved []bool, units grid[int], load, caps []float64) {
	if !mayStay(p, load) {
		return
	}
	var stays []staying
	for i := range p.sources {
		x := staying{sourceState: &p.sources[i], want: p.want.of(i), units: units.of(i), quiet: true}
		if x.rate <= 0 || moved[i] || !x.near() {
			continue
		}
		if stays == nil {
			stays = make([]staying, 0, len(p.sources)-i)
		}
		stays = append(stays, x)
	}
	if stays == nil || !agree(p.t, stays, load, caps) {
		return
	}
	for i := range stays {
		if stays[i].quiet {
			stays[i].stay(load)
		}
	}
}

// staying is a source that may keep what is published.
type staying struct {
	*sourceState

	want  []float64
	units []int // changed
	quiet bool  // it may
}

// agree finds which of the quiet sources can stay together. It looks at all of them
// at once: where sources were to swap places on sites that are full, none could
// stay if the other did not.
func agree(t *terms, stays []staying, load, caps []float64) bool {
	y, change := make([]float64, len(load)), make([]float64, len(load))
	for range 4*len(load) + 8 {
		copy(y, load)
		clear(change)
		for i := range stays {
			s := &stays[i]
			for l := 0; s.quiet && l < len(y); l++ {
				y[l] += s.back(l)
				change[l] += s.rate * (s.want[l] - s.old[l])
			}
		}
		at := disturbed(t.sites, load, y, change, caps)
		if at < 0 {
			return true
		}
		tooMuch := func(s *staying) float64 { return s.rate * math.Abs(s.want[at]-s.old[at]) }
		excess := math.Abs(change[at]) - quietLoad*t.sites[at].Capacity
		if overfull(at, load, y, caps) {
			tooMuch, excess = func(s *staying) float64 { return s.back(at) }, y[at]-caps[at]
		}
		for i := range stays {
			if much := tooMuch(&stays[i]); stays[i].quiet && much > 0 && excess >= 0 {
				stays[i].quiet = false
				excess -= much
			}
		}
	}
	return false
}

// disturbed finds a site that carries too much, or whose load should change too
// much, for the quiet sources to stay; -1 when there is none.
func disturbed(sites []Site, load, y, change, caps []float64) int {
	for l := range sites {
		if k := sites[l].Capacity; k > 0 && math.Abs(change[l]) >= quietLoad*k {
			return l
		}
		if overfull(l, load, y, caps) {
			return l
		}
	}
	return -1
}

// overfull reports whether a site carries too much because sources stay.
func overfull(l int, load, y, caps []float64) bool {
	return caps != nil && y[l] > caps[l]*slackFactor && y[l] > load[l]
}

// back is what a source sends more to a site if it stays.
func (s *staying) back(l int) float64 { return s.rate * (s.old[l] - unit*float64(s.units[l])) }

// mayStay is false when small moves were kept back for long enough while a site
// is above its limit that they would relieve.
func mayStay(p *pacing, load []float64) bool {
	t := p.t
	if !t.ceilings || t.in.Previous == nil {
		return true
	}
	sent := p.sent()
	for l, m := range t.match {
		if m >= 0 && m < len(t.in.Previous.Over) && t.in.Previous.Over[m] >= overTicks-1 &&
			t.wellOver(l, sent) && load[l] < sent[l] {
			return false
		}
	}
	return true
}

// wellOver reports whether a site is so far above its limit that it should not
// stay there for the sake of quiet.
func (t *terms) wellOver(l int, load []float64) bool {
	return t.overLimit(l, load) && load[l] > t.view.limit[l]*(1+overShare)
}

// near reports whether nothing of note is to happen to a source that failures did not move. A
// site that it leaves is of note, and one that it enters with more than next to nothing.
func (s *staying) near() bool {
	if s.prev == nil {
		return false
	}
	for l := range s.old {
		if math.Abs(s.want[l]-s.old[l]) >= quietShare {
			return false
		}
		enters, leaves := s.old[l] <= 0 && s.units[l] > 0, s.old[l] > 0 && s.units[l] <= 0
		if leaves || enters && s.want[l] >= leastEntry {
			return false
		}
	}
	return true
}

// stay puts the published units back.
func (s *staying) stay(load []float64) {
	changed := false
	for l, v := range s.old {
		u := int(math.Round(v / unit))
		if u != s.units[l] {
			changed = true
			load[l] += s.rate * unit * float64(u-s.units[l])
			s.units[l] = u
		}
	}
	if changed {
		s.note(ReasonSuppressed, isobar.Locality{}, "less than 1 point from where it should be: not published")
	}
}

// countOver counts the ticks for which suppression left sites above their limit.
func countOver(p *pacing, load []float64) []int {
	t := p.t
	over := make([]int, len(t.sites))
	if !t.ceilings {
		return over
	}
	want := t.loads(p.sources, p.want)
	for l, m := range t.match {
		before := 0
		if t.in.Previous != nil && m >= 0 && m < len(t.in.Previous.Over) {
			before = t.in.Previous.Over[m]
		}
		switch {
		case !t.wellOver(l, load) || want[l] >= load[l]:
		case t.in.deciding():
			over[l] = min(before+1, overTicks)
		default:
			over[l] = before
		}
	}
	return over
}
