package assign

import (
	"math"
	"slices"
)

// Rules by which oscillations are a limit cycle.
const (
	// OscillationShare is the least amplitude that counts, as a fraction of the
	// service's load: smaller moves are not published either.
	OscillationShare = quietShare
	// cycleTurns is how many turns in a row make a cycle, and cycleTicks is the
	// number of ticks within which they have to occur.
	cycleTurns = 5
	cycleTicks = 60
	// cycleAlike is the factor by which their amplitudes may differ.
	cycleAlike = 3.0
	// cycleDrift is how far turns on the same side may be apart, and cycleDemand
	// how far demand may differ between two turns, as fractions of the amplitude.
	// If they differ more, demand may be what varies.
	cycleDrift  = 0.5
	cycleDemand = 0.5
)

// Oscillation is a limit cycle: a locality's load oscillates under steady demand
// and health.
type Oscillation struct {
	Site      int
	Amplitude float64 // mean, as a part of the service's load
	Ticks     float64 // mean, there and back
}

// Oscillations is the state of the detection of limit cycles in the loads of a
// service's localities. The zero value has seen nothing. A value never changes:
// Observe returns the next one.
type Oscillations struct {
	tick   int
	sites  []siteOscillation
	demand int // sources
}

// siteOscillation is one locality.
type siteOscillation struct {
	up    bool
	moved bool // at all
	last  turn // the extreme of the present move
	turns []turn
}

// turn is an extreme of a locality's part of the load.
type turn struct {
	tick   int
	share  float64
	demand []float64 // of the sources, requests/s; shared
}

// Observe takes the load of each site and the demand of each source, both in
// requests/s and in an order that does not change. It returns the site with the
// largest oscillation, if there is one; then it discards the turns so far, so that
// only new ones count. If the number of sites or sources changes, it starts again.
func (s *Oscillations) Observe(load, demand []float64) (next *Oscillations, found *Oscillation) {
	total := sum(load)
	if total <= 0 || s == nil || len(s.sites) != len(load) || s.demand != len(demand) {
		return startOscillations(load, demand, total), nil
	}
	next = &Oscillations{tick: s.tick + 1, sites: s.sites, demand: s.demand}
	own := false
	var kept []float64 // a copy of demand, made once
	for l := range load {
		x := s.sites[l]
		if !x.follow(turn{tick: next.tick, share: load[l] / total}) {
			continue
		}
		if kept == nil {
			kept = slices.Clone(demand)
		}
		x.last.demand = kept
		if !own {
			next.sites, own = slices.Clone(s.sites), true
		}
		next.sites[l] = x
		if w, ok := x.cycle(next.tick); ok && (found == nil || w.Amplitude > found.Amplitude) {
			w.Site = l
			found = &w
		}
	}
	if found != nil {
		return startOscillations(load, demand, total), found
	}
	return next, nil
}

func startOscillations(load, demand []float64, total float64) *Oscillations {
	if total <= 0 {
		return nil
	}
	out := &Oscillations{sites: make([]siteOscillation, len(load)), demand: len(demand)}
	kept := slices.Clone(demand)
	for l := range load {
		out.sites[l].last = turn{share: load[l] / total, demand: kept}
	}
	return out
}

// follow adds the next point, and reports whether it changed the state.
func (x *siteOscillation) follow(now turn) bool {
	d := now.share - x.last.share
	switch {
	case !x.moved && math.Abs(d) < OscillationShare:
		return false
	case !x.moved:
		x.moved, x.up = true, d > 0
	case d != 0 && x.up == (d > 0): // further on its way
	case math.Abs(d) < OscillationShare:
		return false
	default:
		from := max(0, len(x.turns)+1-cycleTurns)
		x.turns = append(slices.Clone(x.turns[from:]), x.last)
		x.up = !x.up
	}
	x.last = now
	return true
}

// cycle reports whether the last turns make a limit cycle.
func (x *siteOscillation) cycle(tick int) (Oscillation, bool) {
	n := len(x.turns)
	if n < cycleTurns || tick-x.turns[0].tick > cycleTicks {
		return Oscillation{}, false
	}
	least, most, all := math.Inf(1), 0.0, 0.0
	for i := 1; i < n; i++ {
		a := math.Abs(x.turns[i].share - x.turns[i-1].share)
		least, most, all = min(least, a), max(most, a), all+a
		if change(x.turns[i-1].demand, x.turns[i].demand) > cycleDemand*a {
			return Oscillation{}, false
		}
	}
	mean := all / float64(n-1)
	for i := 2; i < n; i++ {
		if math.Abs(x.turns[i].share-x.turns[i-2].share) > cycleDrift*mean {
			return Oscillation{}, false
		}
	}
	ticks := 2 * float64(x.turns[n-1].tick-x.turns[0].tick) / float64(n-1)
	return Oscillation{Amplitude: mean, Ticks: ticks}, most <= cycleAlike*least
}

// change is by how much demand differs, as a part of it: the sum over sources
// of what is more or less.
func change(a, b []float64) float64 {
	diff, all := 0.0, 0.0
	for i := range a {
		diff += math.Abs(a[i] - b[i])
		all += max(a[i], b[i])
	}
	if all <= 0 {
		return 0
	}
	return diff / all
}
