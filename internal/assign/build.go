package assign

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// build makes the row's assignment, or gives the one before when nothing in it
// changed. room is the headroom that weighs the failover tiers.
func (w *work) build(r *row, room []float64) *isobar.Assignment {
	settings := &w.in.Service.Assignment
	a := &isobar.Assignment{
		Service: w.in.Service.Name, Source: r.src.Locality, Drop: w.usualDrop(), Classes: w.classes,
		EndpointStaleAfter: settings.EndpointStaleAfter, ResourceTTL: settings.ResourceTTL,
	}
	before := r.was
	n := 0
	for _, u := range r.units {
		if u > 0 {
			n++
		}
	}
	if n > 0 {
		p0 := make([]isobar.LocalityWeight, 0, n)
		for l, u := range r.units {
			if u > 0 {
				p0 = append(p0, isobar.LocalityWeight{EndpointGroup: r.scope.groups[l], Weight: uint32(u)}) //nolint:gosec // at most WeightScale
			}
		}
		a.Priorities = append(make([][]isobar.LocalityWeight, 0, 1+maxTiers), p0)
	}
	// Where clients get a new answer anyway, its tiers are fresh.
	pushed := before == nil || before.Drop != a.Drop || !before.Classes.Equal(a.Classes) || len(a.Priorities) == 0 || len(before.Priorities) == 0 ||
		!slices.Equal(a.Priorities[0], before.Priorities[0])
	tier := w.tierOf(r)
	for t := range maxTiers {
		ws := r.scope.tierWeights(tier, t, room)
		if ws == nil {
			continue
		}
		if !pushed && len(a.Priorities) < len(before.Priorities) {
			steady(ws, before.Priorities[len(a.Priorities)])
		}
		a.Priorities = append(a.Priorities, ws)
	}
	a.OverprovisioningFactor, a.WeightedPriorityHealth = realising(a.Priorities, settings)
	if SameAssignment(a, before) {
		return before
	}
	return a
}

// realising gives the least overprovisioning factor, and at least the configured
// one, with which unhealthy endpoints neither shrink a locality of priority 0
// nor push a part of its load to the next: our shares count them already.
// Endpoints that drain need no larger factor: Envoy does not count them, and what
// the factor hides of failures that only the client sees would not spill over.
// Where weighted priority health would need a factor that can't be expressed,
// it is not asked for.
func realising(priorities [][]isobar.LocalityWeight, settings *isobar.AssignmentSettings) (factor uint32, weighted bool) {
	factor = settings.OverprovisioningFactor
	if factor == 0 {
		factor = dataplane.DefaultOverprovisioningFactor
	}
	weighted = settings.WeightedPriorityHealth
	if len(priorities) == 0 {
		return factor, weighted
	}
	var all, healthy uint64 // weights of the endpoints of priority 0
	for _, lw := range priorities[0] {
		if counted, usable := countCounted(lw.EndpointGroup), lw.Usable(); usable > 0 {
			factor = max(factor, uint32((100*counted+usable-1)/usable)) //nolint:gosec // counts of endpoints
		}
		for i := range lw.Endpoints {
			e := &lw.Endpoints[i]
			if e.Health == isobar.Draining {
				continue
			}
			all += uint64(e.Weight)
			if e.Health.Usable() {
				healthy += uint64(e.Weight)
			}
		}
	}
	if !weighted || healthy == 0 {
		return factor, weighted
	}
	need := (100*all + healthy - 1) / healthy
	if need > math.MaxUint32 {
		return factor, false
	}
	return max(factor, uint32(need)), true
}

// countCounted counts the endpoints that are in Envoy's denominators.
func countCounted(g *isobar.EndpointGroup) int {
	n := 0
	for i := range g.Endpoints {
		if g.Endpoints[i].Health != isobar.Draining {
			n++
		}
	}
	return n
}

// SameAssignment reports whether two assignments give clients the same; b may be nil.
func SameAssignment(a, b *isobar.Assignment) bool {
	if b == nil || a.Service != b.Service || a.Source != b.Source || a.Drop != b.Drop || !a.Classes.Equal(b.Classes) ||
		a.OverprovisioningFactor != b.OverprovisioningFactor || a.WeightedPriorityHealth != b.WeightedPriorityHealth ||
		a.EndpointStaleAfter != b.EndpointStaleAfter || a.ResourceTTL != b.ResourceTTL || len(a.Priorities) != len(b.Priorities) {
		return false
	}
	for p := range a.Priorities {
		if len(a.Priorities[p]) != len(b.Priorities[p]) {
			return false
		}
		for i := range a.Priorities[p] {
			x, y := &a.Priorities[p][i], &b.Priorities[p][i]
			if x.Weight != y.Weight || (x.EndpointGroup != y.EndpointGroup && !x.Equal(y.EndpointGroup)) {
				return false
			}
		}
	}
	return true
}
