package assign

import (
	"math"
	"slices"
)

// Rules by which swings are a limit cycle.
const (
	// SwingShare is the least part of a service's load by which a locality's must
	// oscillate to be noticed: smaller moves are not published either.
	SwingShare = quietShare
	// swingTurns is how many turns in a row make a cycle, and swingTicks within
	// how many ticks.
	swingTurns = 5
	swingTicks = 60
	// swingAlike is by how much, as a factor, their amplitudes may differ.
	swingAlike = 3.0
	// swingDrift is how far turns on the same side may be apart, and swingDemand
	// by how much demand may differ between two turns, as parts of the amplitude:
	// more, and it may be demand that swings.
	swingDrift  = 0.5
	swingDemand = 0.5
)

// Swing is a limit cycle: a locality's load oscillates under steady demand
// and health.
type Swing struct {
	Site      int
	Amplitude float64 // mean, as a part of the service's load
	Ticks     float64 // mean, there and back
}

// Swings watches the loads of a service's localities for limit cycles. The zero
// value has seen nothing. It is a value that is never changed: Observe gives
// the next one.
type Swings struct {
	tick   int
	sites  []swinging
	demand int // sources
}

// swinging is one locality.
type swinging struct {
	up    bool
	moved bool // at all
	last  turn // the extreme of the present move
	turns []turn
}

// turn is an extreme of a locality's part of the load.
type turn struct {
	tick   int
	part   float64
	demand []float64 // of the sources, requests/s; shared
}

// Observe takes the load of each site and the demand of each source, both in
// requests/s and in an order that does not change. It tells the site that swings
// most, if any does; then what was seen is forgotten, so that only new swings
// count again. Where the number of sites or sources changes it begins anew.
func (s *Swings) Observe(load, demand []float64) (next *Swings, found *Swing) {
	total := sum(load)
	if total <= 0 || s == nil || len(s.sites) != len(load) || s.demand != len(demand) {
		return startSwings(load, demand, total), nil
	}
	next = &Swings{tick: s.tick + 1, sites: s.sites, demand: s.demand}
	own := false
	var kept []float64 // a copy of demand, made once
	for l := range load {
		x := s.sites[l]
		if !x.follow(turn{tick: next.tick, part: load[l] / total}) {
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
		return startSwings(load, demand, total), found
	}
	return next, nil
}

func startSwings(load, demand []float64, total float64) *Swings {
	if total <= 0 {
		return nil
	}
	out := &Swings{sites: make([]swinging, len(load)), demand: len(demand)}
	kept := slices.Clone(demand)
	for l := range load {
		out.sites[l].last = turn{part: load[l] / total, demand: kept}
	}
	return out
}

// follow takes the next point; it reports whether anything changed by it.
func (x *swinging) follow(now turn) bool {
	d := now.part - x.last.part
	switch {
	case !x.moved && math.Abs(d) < SwingShare:
		return false
	case !x.moved:
		x.moved, x.up = true, d > 0
	case d != 0 && x.up == (d > 0): // further on its way
	case math.Abs(d) < SwingShare:
		return false
	default:
		from := max(0, len(x.turns)+1-swingTurns)
		x.turns = append(slices.Clone(x.turns[from:]), x.last)
		x.up = !x.up
	}
	x.last = now
	return true
}

// cycle reports whether the last turns make a limit cycle.
func (x *swinging) cycle(tick int) (Swing, bool) {
	n := len(x.turns)
	if n < swingTurns || tick-x.turns[0].tick > swingTicks {
		return Swing{}, false
	}
	least, most, all := math.Inf(1), 0.0, 0.0
	for i := 1; i < n; i++ {
		a := math.Abs(x.turns[i].part - x.turns[i-1].part)
		least, most, all = min(least, a), max(most, a), all+a
		if change(x.turns[i-1].demand, x.turns[i].demand) > swingDemand*a {
			return Swing{}, false
		}
	}
	mean := all / float64(n-1)
	for i := 2; i < n; i++ {
		if math.Abs(x.turns[i].part-x.turns[i-2].part) > swingDrift*mean {
			return Swing{}, false
		}
	}
	ticks := 2 * float64(x.turns[n-1].tick-x.turns[0].tick) / float64(n-1)
	return Swing{Amplitude: mean, Ticks: ticks}, most <= swingAlike*least
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
