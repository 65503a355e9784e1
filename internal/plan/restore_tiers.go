package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// saveTiers extracts the weights below priority 0.
func saveTiers(sites []assign.Site, a *isobar.Assignment) [][]SavedWeight {
	if a == nil || len(a.Priorities) < 2 {
		return nil
	}
	out := make([][]SavedWeight, 0, len(a.Priorities)-1)
	for _, tier := range a.Priorities[1:] {
		saved := make([]SavedWeight, 0, len(tier))
		for _, lw := range tier {
			at := slices.IndexFunc(sites, func(s assign.Site) bool { return s.Group.Locality == lw.Locality })
			saved = append(saved, SavedWeight{Site: at, Weight: lw.Weight})
		}
		out = append(out, saved)
	}
	return out
}

// reviveTiers builds the assignment that the next one is held against, as far
// as it matters for that: its tiers. Damaged tiers are left out; they are then
// weighed again.
func (src *SavedSource) reviveTiers(service string, groups []*isobar.EndpointGroup) *isobar.Assignment {
	a := &isobar.Assignment{Service: service, Source: src.Source}
	for l, share := range src.Shares {
		if share > 0 {
			if len(a.Priorities) == 0 {
				a.Priorities = append(a.Priorities, nil)
			}
			a.Priorities[0] = append(a.Priorities[0], isobar.LocalityWeight{EndpointGroup: groups[l], Weight: uint32(share*isobar.WeightScale + 0.5)})
		}
	}
	for _, tier := range src.Tiers {
		var weights []isobar.LocalityWeight
		for _, w := range tier {
			if w.Site < 0 || w.Site >= len(groups) || w.Weight == 0 {
				return a
			}
			weights = append(weights, isobar.LocalityWeight{EndpointGroup: groups[w.Site], Weight: w.Weight})
		}
		a.Priorities = append(a.Priorities, weights)
	}
	return a
}
