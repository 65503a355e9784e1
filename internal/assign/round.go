package assign

import (
	"fmt"
	"math"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

// round turns the shares of the sources with demand into units that sum to
// WeightScale, adds what they send to the load, by largest remainders, but gives a unit only to a site that stays
// below its limit as long as there is one. full is nil where no ceilings bind.
func round(sources []sourceState, next shares, units grid[int], load, full []float64) {
	for i := range sources {
		if sources[i].rate > 0 {
			p := portion{sourceState: &sources[i], next: next.of(i), units: units.of(i)}
			p.floor(load)
		}
	}
	for i := range sources {
		if sources[i].rate > 0 {
			p := portion{sourceState: &sources[i], next: next.of(i), units: units.of(i)}
			p.topUp(load, full)
		}
	}
}

// portion is a source's shares on their way to units of WeightScale.
type portion struct {
	*sourceState

	next  []float64
	units []int // changed
}

// floor rounds down and adds what that makes to the load.
func (p *portion) floor(load []float64) {
	if len(p.units) == 0 {
		return
	}
	for l, v := range p.next {
		p.units[l] = max(0, int(math.Floor(v/unit+1e-6))) // what the steps before leave may be -1e-10 for 0
		load[l] += p.rate * unit * float64(p.units[l])
	}
}

// topUp hands out what rounding down left.
func (p *portion) topUp(load, full []float64) {
	left := isobar.WeightScale
	for _, u := range p.units {
		left -= u
	}
	if left <= 0 || left > isobar.WeightScale-1 && sum(p.next) <= tiny {
		return // nothing to do, or nowhere to go
	}
	step := p.rate * unit
	given := make([]bool, len(p.units))
	for range left {
		at := p.bestRemainder(load, full, given, step)
		if at < 0 {
			clear(given)
			if at = p.bestRemainder(load, full, given, step); at < 0 {
				at = p.leastExcess(load, full, step)
			}
		}
		if at < 0 {
			at = largest(p.next)
		}
		given[at] = true
		p.units[at]++
		load[at] += step
	}
}

// bestRemainder finds the site that rounding down cut most, among those that
// have headroom for one more unit.
func (p *portion) bestRemainder(load, full []float64, given []bool, step float64) int {
	at, most := -1, 0.0
	for l, v := range p.next {
		if given[l] || v < unit || p.isProbe(l) || (full != nil && load[l]+step > full[l]) {
			continue
		}
		if rest := v/unit - float64(p.units[l]); at < 0 || rest > most+tiny {
			at, most = l, rest
		}
	}
	return at
}

// leastExcess finds where one more unit goes when every site is full:
// among those that rounding down cut, where it does least relative to the limit.
func (p *portion) leastExcess(load, full []float64, step float64) int {
	at, least := -1, 0.0
	for l, v := range p.next {
		if v < unit || p.isProbe(l) || v/unit-float64(p.units[l]) <= tiny {
			continue
		}
		excess := 0.0
		if full != nil {
			excess = (load[l] + step) / max(tiny, full[l])
		}
		if at < 0 || excess < least {
			at, least = l, excess
		}
	}
	return at
}

// Decisions for each source alone can break the rules slightly once all sources are together: the steps
// below correct that as far as there is headroom.

// revertSmallEntries removes entries below the threshold, which occur because the
// step was cut or the wanted share is that small, if the other sites of the source have
// headroom for them. full is nil where no ceilings bind.
func revertSmallEntries(p *pacing, full []float64) {
	load := p.t.loads(p.sources, p.next)
	for i := range p.sources {
		if s := p.at(i); s.rate > 0 {
			s.revertSmallEntry(p.t, load, full)
		}
	}
}

func (s *step) revertSmallEntry(t *terms, load, full []float64) {
	left, count, last := 0.0, 0, 0
	for l, v := range s.next {
		if !s.entersSmall(l) {
			continue
		}
		if !s.takeBack(l, load, full) {
			left, count, last = left+v, count+1, l
		}
	}
	if count > 0 {
		s.note(ReasonFull, t.sites[last].Group.Locality,
			fmt.Sprintf("%.2f%% of the requests enter %s, less than %g%%%s: those in use have no headroom for them",
				100*left, plural.Count(count, "locality", "localities"), 100*entryShare, plural.Of(count, "", " each")))
	}
}

func (s *step) entersSmall(l int) bool {
	return s.next[l] > 0 && s.next[l] < entryShare-tiny && s.old[l] <= 0 && (s.prev == nil || s.from[l] <= 0) && !s.isProbe(l)
}

// takeBack spreads what a source would send to site l over its other sites, first
// to those that it is leaving, then to the nearest. It reports whether there was
// headroom; else nothing changes.
func (s *step) takeBack(l int, load, full []float64) bool {
	space := func(k int) float64 {
		switch {
		case k == l || s.next[k] <= 0 || !s.open(k) || s.entersSmall(k):
			return 0
		case full == nil || s.rate <= 0:
			return math.Inf(1)
		default:
			return max(0, full[k]-load[k]) / s.rate
		}
	}
	total := 0.0
	for k := range s.next {
		total += space(k)
	}
	if total < s.next[l] {
		return false
	}
	for range 2 * len(s.next) {
		to, part := -1, 0.0
		for k := range s.next {
			free := space(k)
			leaving := s.from[k] - s.next[k]
			if free <= 0 || (leaving <= 0 && part > 0) {
				continue
			}
			if to < 0 || (leaving > 0 && part <= 0) || s.dist[k] < s.dist[to] {
				to, part = k, max(0, leaving)
			}
		}
		if to < 0 || s.next[l] <= 0 {
			break
		}
		share := min(space(to), s.next[l])
		if part > 0 {
			share = min(share, part)
		}
		s.next[l] -= share
		s.next[to] += share
		load[l] -= s.rate * share
		load[to] += s.rate * share
	}
	if s.next[l] < tiny {
		load[l] -= s.rate * s.next[l]
		s.next[l] = 0
	}
	return true
}

// moveCappedUnits moves units that rounding put above a cap to sites that have
// headroom since sources kept their shares.
func moveCappedUnits(sources []sourceState, units grid[int], load, caps, full []float64) {
	if caps == nil {
		return
	}
	for range 4*len(load) + 8 {
		moved := false
		for l := range load {
			for i := 0; i < len(sources) && load[l] > caps[l]; i++ {
				p := portion{sourceState: &sources[i], units: units.of(i)}
				moved = p.moveUnit(l, load, caps, full) || moved
			}
		}
		if !moved {
			return
		}
	}
}

// moveUnit moves one unit by which a source lifts site l above its cap to another
// of its sites.
func (p *portion) moveUnit(l int, load, caps, full []float64) bool {
	step := p.rate * unit
	if step < load[l]-caps[l] || step <= 0 || p.isProbe(l) || p.units[l] < 2 || float64(p.units[l])*unit <= p.old[l]+unit/2 {
		return false
	}
	to := -1
	for k := range full {
		if k != l && p.units[k] > 0 && p.open(k) && load[k]+step <= full[k] && (to < 0 || full[k]-load[k] > full[to]-load[to]) {
			to = k
		}
	}
	if to < 0 {
		return false
	}
	p.units[l]--
	p.units[to]++
	load[l] -= step
	load[to] += step
	return true
}

// Drops: one fraction for all clients of the service.
const (
	dropOff    = 0.005 // a decaying drop ends below this
	dropSteady = 0.005 // a drop stays while at most this much too high
	dropRise   = 0.001 // and this much too low
	dropEnds   = 4.0   // by which it is divided in a tick when all demand just fits
	dropFits   = 0.85  // of what the localities may carry: demand below it fits well
)

// nextDrop returns the fraction that clients drop. It follows the solver up at
// once, and falls by half in a tick. When all demand just fits, it falls to a
// quarter, so that an error of the estimates does not overload everything again.
// When all demand fits well, it ends at once: the demand counts dropped requests,
// so no more than that can come. Without a decision the fraction stays.
func nextDrop(in *Input) float64 {
	shed, most := min(1, finite(in.Shed)), min(1, finite(in.Service.MaxShed))
	if in.Service.Mode == isobar.ModeObserve {
		shed = 0 // observing must not cost a request
	}
	if in.Previous == nil {
		return wireDrop(shed, most)
	}
	prev := min(finite(in.Previous.Drop), most)
	switch {
	case !in.deciding():
		return wireDrop(prev, most)
	case steadyDrop(shed, prev):
		return wireDrop(prev, most)
	case shed > prev:
		return wireDrop(shed, most)
	case shed <= 0 && (prev/dropEnds < dropOff || in.fitsWell()):
		return 0
	case shed <= 0:
		return wireDrop(prev/dropEnds, most)
	default:
		return wireDrop(max(shed, prev/2), most)
	}
}

// fitsWell reports whether the demand of all sources is well below what all
// localities together may carry.
func (in *Input) fitsWell() bool {
	demand, limit := 0.0, 0.0
	for i := range in.Sources {
		demand += finite(in.Sources[i].Demand)
	}
	for i := range in.Sites {
		if s := &in.Sites[i]; s.Usable() {
			limit += finite(s.Limit())
		}
	}
	return demand <= dropFits*limit
}

// fineDrop is the largest drop that goes out in 1/10,000: grpc-go before 1.85
// overflows above it, so that larger ones are told in whole percents.
const fineDrop = 0.4294

// wireDrop rounds up to what the wire can tell, but never above the most that
// the operator allows.
func wireDrop(drop, most float64) float64 {
	fine := min(roundUp(drop, 10_000), roundDown(most, 10_000))
	if fine <= fineDrop {
		return max(0, fine)
	}
	return max(fineDrop, min(roundUp(drop, 100), roundDown(most, 100)))
}

func roundUp(v, scale float64) float64   { return math.Ceil(v*scale-1e-6) / scale }
func roundDown(v, scale float64) float64 { return math.Floor(v*scale+1e-6) / scale }
