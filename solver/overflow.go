package solver

import (
	"cmp"
	"math"
	"slices"
)

const (
	// tight is the fill at which a part counts as saturated: between it and 1
	// the freedom left is too small to be worth a thought.
	tight = 1 - 1e-9
	// fullSlack is how far above 1 a factor is still rounding of a perfect fit.
	fullSlack = 1e-11
	// raiseSlack widens raised ceilings, so that rounding never crosses them.
	raiseSlack = 1e-9
	// unmetSlack is the share of a source's demand that rounding may leave.
	unmetSlack = 1e-12
)

// part is a piece of a service that can be solved alone. In a saturated part
// demand fills every locality to its ceiling times the factor; nobody else can
// send there.
type part struct {
	sources, localities []int
	saturated           bool
	factor              float64 // of the ceilings; >= tight where saturated, else 1
}

// partition splits demand by how hard it presses: again and again the sources
// that need the highest factor on the rooms of all the localities they may use
// are split off together with these, until the rest fits. Without isolation
// that is all or nothing.
func (in *instance) partition(demand []float64, ramps []ramp) []part {
	sources := make([]int, 0, len(demand))
	for s, d := range demand {
		if d > 0 {
			sources = append(sources, s)
		}
	}
	localities := make([]int, in.localities)
	for l := range localities {
		localities[l] = l
	}
	var parts []part
	for len(sources) > 0 {
		cut, factor := in.hardest(sources, localities, demand, ramps)
		if cut == nil {
			break
		}
		near := in.reach(cut, localities)
		parts = append(parts, part{sources: cut, localities: near, saturated: true, factor: factor})
		sources = without(sources, cut)
		localities = without(localities, near)
	}
	if len(sources) > 0 || len(localities) > 0 {
		parts = append(parts, part{sources: sources, localities: localities, factor: 1})
	}
	return parts
}

// hardest finds the sources that need the highest factor, nil if all fit below
// tight. It is Newton's method on the factor (Dinkelbach 1967): each round
// raises it to what the last violated cut needs. Cuts are finitely many, and a
// source that gets its first room is never again a cut without any.
func (in *instance) hardest(sources, localities []int, demand []float64, ramps []ramp) (cut []int, factor float64) {
	factor = tight
	for range 2*len(sources) + len(localities) + 2 {
		next := in.violated(sources, localities, demand, ramps, factor)
		if next == nil {
			break
		}
		need := fit(ramps, in.reach(next, localities), sumOf(demand, next))
		if cut != nil && need <= factor {
			break // rounding: the last cut was the hardest
		}
		cut, factor = next, math.Max(need, tight)
		if math.IsInf(factor, 1) {
			break
		}
	}
	return cut, factor
}

// violated returns the sources of a cut whose demand is beyond the rooms it can
// reach at that factor; nil if everything fits.
func (in *instance) violated(sources, localities []int, demand []float64, ramps []ramp, factor float64) []int {
	total, sum := 0.0, 0.0
	for _, s := range sources {
		total += demand[s]
	}
	for _, l := range localities {
		sum += ramps[l].room(factor)
	}
	if in.complete {
		if total <= sum*(1+unmetSlack) {
			return nil
		}
		return sources
	}
	t := newTransport(len(sources), len(localities), in.openAmong(sources, localities))
	for i, s := range sources {
		t.unmet[i] = demand[s]
	}
	for j, l := range localities {
		t.room[j] = ramps[l].room(factor)
	}
	cut := t.starved()
	if len(cut) == 0 {
		t.fill()
		t.grow()
		for i, s := range sources {
			if t.unmet[i] <= unmetSlack*demand[s] {
				t.unmet[i] = 0
			}
		}
		t.search()
		cut = t.reached()
	}
	if len(cut) == 0 {
		return nil
	}
	return pick(sources, cut)
}

// ramp is the room of a locality as a function of the factor:
// max(0, slope factor - base).
type ramp struct{ slope, base float64 }

func (r ramp) room(factor float64) float64 { return math.Max(0, r.slope*factor-r.base) }

// fit is the factor at which these ramps take exactly demand; infinite if no
// factor does.
func fit(ramps []ramp, localities []int, demand float64) float64 {
	rising := make([]ramp, 0, len(localities))
	for _, l := range localities {
		if ramps[l].slope > 0 {
			rising = append(rising, ramps[l])
		}
	}
	slices.SortFunc(rising, func(a, b ramp) int { return cmp.Compare(a.base/a.slope, b.base/b.slope) })
	slope, base := 0.0, 0.0
	for i, r := range rising {
		slope += r.slope
		base += r.base
		factor := (demand + base) / slope
		if i+1 == len(rising) || factor <= rising[i+1].base/rising[i+1].slope {
			return factor
		}
	}
	return math.Inf(1)
}
