package assign

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

const (
	maxTiers   = 3     // priorities below 0
	tierScale  = 1_000 // weights of a tier sum to about this
	tierSteady = 0.33  // a tier's weights stay while less than this share of it differs
	tierFloor  = 0.05  // of what a site may carry: counts as its headroom at least
)

// builder makes the assignments of a service's sources.
type builder struct {
	t        *terms
	headroom []float64 // per site, the headroom that weighs the failover tiers
	tier     []int     // per site, its failover tier for the source at hand
}

func newBuilder(t *terms, headroom []float64) *builder {
	return &builder{t: t, headroom: headroom, tier: make([]int, len(t.sites))}
}

// build makes the source's assignment, or returns the one before when nothing in it
// changed.
func (b *builder) build(s *sourceState, units []int) *isobar.Assignment {
	t := b.t
	settings := &t.in.Service.Assignment
	a := &isobar.Assignment{
		Service: t.in.Service.Name, Source: s.src.Locality, Drop: t.usualDrop(), Classes: t.classes,
		EndpointStaleAfter: settings.EndpointStaleAfter, ResourceTTL: settings.ResourceTTL,
	}
	before := s.was
	n := 0
	for _, u := range units {
		if u > 0 {
			n++
		}
	}
	if n > 0 {
		p0 := make([]isobar.LocalityWeight, 0, n)
		for l, u := range units {
			if u > 0 {
				p0 = append(p0, isobar.LocalityWeight{EndpointGroup: s.scope.groups[l], Weight: uint32(u)}) //nolint:gosec // at most WeightScale
			}
		}
		a.Priorities = append(make([][]isobar.LocalityWeight, 0, 1+maxTiers), p0)
	}
	// Where clients get a new answer anyway, its tiers are fresh.
	pushed := before == nil || before.Drop != a.Drop || !before.Classes.Equal(a.Classes) || len(a.Priorities) == 0 || len(before.Priorities) == 0 ||
		!slices.Equal(a.Priorities[0], before.Priorities[0])
	s.tiers(t, units, b.tier)
	for k := range maxTiers {
		ws := s.scope.tierWeights(b.tier, k, b.headroom)
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

// realising returns the least overprovisioning factor, and at least the configured
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

// tiers sorts a source's sites outside priority 0 into failover tiers: the rest
// of its region, the next region, everything else. Sites that take no regular
// traffic come last. -1 marks sites in priority 0 and those without
// endpoints.
func (s *sourceState) tiers(t *terms, units, tier []int) {
	next, found := "", false
	home := s.src.Locality.Region
	nearest := 0.0
	for l := range t.sites {
		region := t.sites[l].Group.Locality.Region
		switch {
		case units[l] > 0 || len(s.scope.groups[l].Endpoints) == 0 || s.isForbidden(l):
			tier[l] = -1
		case !s.usable(l) || s.src.Locality.IsZero():
			tier[l] = 2
		case region == home:
			tier[l] = 0
		default:
			tier[l] = 2
			if !found || s.dist[l] < nearest {
				next, nearest, found = region, s.dist[l], true
			}
		}
	}
	for l := range t.sites {
		if found && tier[l] == 2 && s.usable(l) && t.sites[l].Group.Locality.Region == next {
			tier[l] = 1
		}
	}
}

// tierWeights sets the weights of one tier by headroom, at least 1 each. Sites
// that are full count with a little headroom: what is left of it there is noise, and
// all of a zone's traffic must not go to whichever has a request/s more.
func (v *view) tierWeights(tier []int, t int, headroom []float64) []isobar.LocalityWeight {
	total, n := 0.0, 0
	measure := func(l int) float64 { return max(headroom[l], tierFloor*v.limit[l]) }
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

// sameGroups reports whether a tier has the same endpoints as before.
func sameGroups(tier, before []isobar.LocalityWeight) bool {
	return slices.EqualFunc(tier, before, func(a, b isobar.LocalityWeight) bool { return a.EndpointGroup == b.EndpointGroup })
}
