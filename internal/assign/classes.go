package assign

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// Mix is how a source's demand divides over the classes of its clients, as
// fractions. The zero Mix is all critical.
type Mix [isobar.Classes]float64

// normal returns the mix with a sum of 1.
func (m *Mix) normal() Mix {
	total := 0.0
	for _, v := range m {
		total += finite(v)
	}
	if total <= tiny {
		return Mix{isobar.ClassCritical: 1}
	}
	var out Mix
	for c, v := range m {
		out[c] = finite(v) / total
	}
	return out
}

// Dropped is the part of a source's requests that is dropped by classes.
func (m *Mix) Dropped(drops *isobar.ClassFractions) float64 {
	of := m.normal()
	sum := 0.0
	for c, v := range of {
		sum += v * drops[c]
	}
	return sum
}

// mixOf is the mix of a whole service.
func mixOf(sources []Source) Mix {
	var out Mix
	for i := range sources {
		of := sources[i].Mix.normal()
		for c, v := range of {
			out[c] += v * finite(sources[i].Demand)
		}
	}
	return out.normal()
}

// ShedByClass spreads what is to be shed of a service, as a fraction of its
// demand, over the classes of its clients as they are told, but for rounding.
func ShedByClass(shed float64, sources []Source, rules *isobar.Criticality) isobar.ClassFractions {
	return fill(shed, mixOf(sources), &rules.MaxShed)
}

// fill takes what is to be shed, as a fraction of the demand, from those that
// matter least first, of each class up to its own limit.
func fill(shed float64, mix Mix, limits *isobar.ClassFractions) (drops isobar.ClassFractions) {
	left := shed
	for c := isobar.Classes - 1; c >= 0; c-- {
		if mix[c] <= tiny {
			continue
		}
		drops[c] = max(0, min(limits[c], left/mix[c]))
		left -= drops[c] * mix[c]
	}
	return drops
}

// divide is fill as the wire can tell it. A class that sends nothing gets what
// the next one gets that matters more.
func divide(shed float64, mix Mix, limits *isobar.ClassFractions) isobar.ClassFractions {
	drops := fill(shed, mix, limits)
	for c := 1; c < isobar.Classes; c++ {
		if mix[c] <= tiny {
			drops[c] = drops[c-1]
		}
	}
	for c := range drops {
		drops[c] = wireDrop(drops[c], limits[c])
	}
	return drops
}

// nextDrops returns what clients drop after this decision: of all requests, and
// by class where the service has classes (else nil).
func nextDrops(in *Input) (total float64, classes *isobar.ClassDrops) {
	rules := in.Service.Criticality
	if rules == nil {
		return nextDrop(in), nil
	}
	mix := mixOf(in.Sources)
	drops := in.Previous.classDrops(mix, rules)
	if now := mix.Dropped(&drops); !staysDivided(in, now, mix, &drops) {
		alone := *in
		if in.Previous != nil { // as it is with the clients of now
			was := *in.Previous
			was.Drop = min(now, finite(in.Service.MaxShed))
			alone.Previous = &was
		}
		drops = divide(nextDrop(&alone), mix, &rules.MaxShed)
	}
	return mix.Dropped(&drops), &isobar.ClassDrops{Criticality: rules, Drops: drops}
}

// staysDivided reports whether clients go on dropping as before, which is now so
// much of all requests.
func staysDivided(in *Input, now float64, mix Mix, drops *isobar.ClassFractions) bool {
	switch {
	case in.Previous == nil, now > min(1, finite(in.Service.MaxShed))+coarse:
		return false
	case !in.deciding():
		return true
	case in.Service.Mode == isobar.ModeObserve, !steadyDrop(min(1, finite(in.Shed)), now):
		return false
	}
	// The same in all, but clients that matter less may have come since.
	anew, moved := divide(now, mix, &in.Service.Criticality.MaxShed), 0.0
	for c, d := range drops {
		moved += mix[c] * max(0, d-anew[c])
	}
	return moved <= dropSteady
}

// coarse is by how much the steps of the wire may lift what is dropped.
const coarse = 0.01

// steadyDrop reports whether a drop may stay what it is.
func steadyDrop(shed, before float64) bool {
	return shed > 0 && before > 0 && before-shed <= dropSteady && shed-before <= dropRise
}

// classDrops returns what was dropped by class, within the limits of now; from
// when there were no classes, what was dropped of all, divided.
func (r *Result) classDrops(mix Mix, rules *isobar.Criticality) (drops isobar.ClassFractions) {
	switch {
	case r == nil || r.Drop <= 0 && r.Classes == nil:
		return drops
	case r.Classes == nil:
		return divide(r.Drop, mix, &rules.MaxShed)
	}
	higher := 0.0 // of the class that matters more: that of a new limit may be lower
	for c, d := range r.Classes.Drops {
		higher = max(higher, math.Min(finite(d), rules.MaxShed[c]))
		drops[c] = wireDrop(higher, rules.MaxShed[c])
	}
	return drops
}

// Fraction returns the fraction of a mix that is of a class.
func (m *Mix) Fraction(class isobar.Class) float64 {
	of := m.normal()
	return of[class]
}

// DropOf is the part of a source's requests that its clients drop.
func (r *Result) DropOf(s *SourceResult) float64 {
	if r.Classes == nil {
		return r.Drop
	}
	return s.Mix.Dropped(&r.Classes.Drops)
}
