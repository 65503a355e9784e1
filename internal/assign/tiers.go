package assign

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

const (
	maxTiers   = 3     // priorities below 0
	tierScale  = 1_000 // weights of a tier sum to about this
	tierSteady = 0.33  // a tier's weights stay while less than this share of it differs
	tierFloor  = 0.05  // of what a site may carry: counts as its room at least
)

// tierOf sorts a row's sites outside priority 0 into failover tiers: the rest
// of its region, the next region, everything else. Sites that take no regular
// traffic come last. -1 stands for sites in priority 0 and for those without
// endpoints.
func (w *work) tierOf(r *row) []int {
	tier := make([]int, len(w.sites))
	next, found := "", false
	home := r.src.Locality.Region
	nearest := 0.0
	for l := range w.sites {
		region := w.sites[l].Group.Locality.Region
		switch {
		case r.units[l] > 0 || len(r.scope.groups[l].Endpoints) == 0 || r.isForbidden(l):
			tier[l] = -1
		case !w.usable(r, l) || r.src.Locality.IsZero():
			tier[l] = 2
		case region == home:
			tier[l] = 0
		default:
			tier[l] = 2
			if !found || r.dist[l] < nearest {
				next, nearest, found = region, r.dist[l], true
			}
		}
	}
	for l := range w.sites {
		if found && tier[l] == 2 && w.usable(r, l) && w.sites[l].Group.Locality.Region == next {
			tier[l] = 1
		}
	}
	return tier
}

// tierWeights sets the weights of one tier by headroom, at least 1 each. Sites
// that are full count with a little room: what is left of it there is noise, and
// all of a zone's traffic must not go to whichever has a request/s more.
func (v *view) tierWeights(tier []int, t int, room []float64) []isobar.LocalityWeight {
	total, n := 0.0, 0
	measure := func(l int) float64 { return max(room[l], tierFloor*v.limit[l]) }
	for l, k := range tier {
		if k == t {
			total += measure(l)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	if total <= 0 {
		measure = func(l int) float64 { return v.spread[l] }
		for l, k := range tier {
			if k == t {
				total += measure(l)
			}
		}
	}
	out := make([]isobar.LocalityWeight, 0, n)
	for l, k := range tier {
		if k != t {
			continue
		}
		weight := uint32(1)
		if total > 0 {
			weight = uint32(max(1, math.Round(tierScale*measure(l)/total)))
		}
		out = append(out, isobar.LocalityWeight{EndpointGroup: v.groups[l], Weight: weight})
	}
	return out
}

// steady takes the weights of the tier before when it has the same localities
// with the same endpoints and does not differ much: a failover tier needs no
// precision, and every change is a push, after which evidence has to wait for
// the clients.
func steady(tier, before []isobar.LocalityWeight) {
	if !sameGroups(tier, before) {
		return
	}
	a, b := 0.0, 0.0
	for i := range tier {
		a += float64(tier[i].Weight)
		b += float64(before[i].Weight)
	}
	differ := 0.0
	for i := range tier {
		differ += math.Abs(float64(tier[i].Weight)/a - float64(before[i].Weight)/b)
	}
	if differ/2 >= tierSteady {
		return
	}
	for i := range tier {
		tier[i].Weight = before[i].Weight
	}
}

// sameGroups tells whether a tier has the same endpoints as before.
func sameGroups(tier, before []isobar.LocalityWeight) bool {
	return slices.EqualFunc(tier, before, func(a, b isobar.LocalityWeight) bool { return a.EndpointGroup == b.EndpointGroup })
}
