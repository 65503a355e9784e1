package assign

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// build makes the row's assignment, or gives the one before when nothing in it
// changed. room is the headroom that weighs the failover tiers.
func (w *work) build(r *row, room []float64) *isobar.Assignment {
	a := &isobar.Assignment{Service: w.in.Service.Name, Source: r.src.Locality, Drop: w.drop}
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
				p0 = append(p0, isobar.LocalityWeight{EndpointGroup: w.view.groups[l], Weight: uint32(u)}) //nolint:gosec // at most WeightScale
			}
		}
		a.Priorities = append(make([][]isobar.LocalityWeight, 0, 1+maxTiers), p0)
	}
	// Where clients get a new answer anyway, its tiers are fresh.
	pushed := before == nil || before.Drop != a.Drop || len(a.Priorities) == 0 || len(before.Priorities) == 0 ||
		!slices.Equal(a.Priorities[0], before.Priorities[0])
	tier := w.tierOf(r)
	for t := range maxTiers {
		ws := w.tierWeights(tier, t, room)
		if ws == nil {
			continue
		}
		if !pushed && len(a.Priorities) < len(before.Priorities) {
			steady(ws, before.Priorities[len(a.Priorities)])
		}
		a.Priorities = append(a.Priorities, ws)
	}
	a.OverprovisioningFactor = factor(a.Priorities)
	if sameAssignment(a, before) {
		return before
	}
	return a
}

// factor is the least overprovisioning factor, and at least the data planes'
// own, with which unhealthy endpoints do not shrink a locality of priority 0:
// our shares count them already.
func factor(priorities [][]isobar.LocalityWeight) uint32 {
	f := uint32(dataplane.DefaultOverprovisioningFactor)
	if len(priorities) == 0 {
		return f
	}
	for _, lw := range priorities[0] {
		total, usable := len(lw.Endpoints), lw.Usable()
		if usable > 0 {
			f = max(f, uint32((100*total+usable-1)/usable)) //nolint:gosec // counts of endpoints
		}
	}
	return f
}

func sameAssignment(a, b *isobar.Assignment) bool {
	if b == nil || a.Service != b.Service || a.Source != b.Source || a.Drop != b.Drop ||
		a.OverprovisioningFactor != b.OverprovisioningFactor || len(a.Priorities) != len(b.Priorities) {
		return false
	}
	for p := range a.Priorities {
		if len(a.Priorities[p]) != len(b.Priorities[p]) {
			return false
		}
		for i := range a.Priorities[p] {
			if a.Priorities[p][i] != b.Priorities[p][i] {
				return false
			}
		}
	}
	return true
}
