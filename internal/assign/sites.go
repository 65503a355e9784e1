package assign

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// view is what the sites of a service are good for at this moment.
type view struct {
	use    []bool    // may take traffic in priority 0
	limit  []float64 // requests/s that obey and that it may carry
	size   []float64 // endpoints that take traffic, where any do
	spread []float64 // splits traffic where no headroom tells: never all zero over use
	groups []*isobar.EndpointGroup
	// regular is false while no site is fully fit: limits then mean nothing.
	regular  bool
	failOpen bool
}

// viewOf ranks the sites and uses those of the best rank that there is: fit
// ones, else those without capacity, else unreachable ones. When nothing is
// healthy the service fails open: then those with endpoints in the most hopeful
// state are used. Forbidden sites are as if they were not there; nil = none.
func viewOf(sites []Site, forbidden []bool) view {
	v := view{use: make([]bool, len(sites)), limit: make([]float64, len(sites)), size: make([]float64, len(sites)), spread: make([]float64, len(sites))}
	ranks := []func(*Site) bool{
		fit,
		func(s *Site) bool { return s.Usable() && !s.Unreachable },
		(*Site).Usable,
		func(s *Site) bool { return mostHopeful(s.Group) == hopeDegraded },
		func(s *Site) bool { return mostHopeful(s.Group) <= hopeDown },
		func(s *Site) bool { return len(s.Group.Endpoints) > 0 },
	}
	const usableRanks = 3
	rank := 0
	for rank < len(ranks) && !v.mark(sites, forbidden, ranks[rank]) {
		rank++
	}
	v.regular, v.failOpen = rank == 0, rank >= usableRanks && rank < len(ranks)
	for i := range sites {
		if v.use[i] {
			v.limit[i] = sites[i].Limit()
			v.size[i] = float64(sites[i].Group.Usable())
		}
	}
	v.setSpread(sites)
	v.groups = make([]*isobar.EndpointGroup, len(sites))
	for i := range sites {
		v.groups[i] = sites[i].Group
		if v.failOpen {
			v.groups[i] = opened(sites[i].Group, rank-usableRanks)
		}
	}
	return v
}

// fit reports whether a site can take traffic in the regular way.
func fit(s *Site) bool { return s.Capacity > 0 && !s.Unreachable && s.Usable() }

func (v *view) mark(sites []Site, forbidden []bool, ok func(*Site) bool) bool {
	some := false
	for i := range sites {
		v.use[i] = (forbidden == nil || !forbidden[i]) && ok(&sites[i])
		some = some || v.use[i]
	}
	return some
}

func (v *view) setSpread(sites []Site) {
	measures := []func(int) float64{
		func(i int) float64 { return v.limit[i] },
		func(i int) float64 { return sites[i].Nominal },
		func(i int) float64 { return float64(len(sites[i].Group.Endpoints)) },
	}
	for _, m := range measures {
		sum := 0.0
		for i := range sites {
			if v.use[i] {
				v.spread[i] = max(0, m(i))
				sum += v.spread[i]
			}
		}
		if sum > 0 {
			return
		}
	}
}

// How much is hoped of an endpoint that is not healthy: degraded ones are known
// to answer, draining ones were taken out on purpose.
const (
	hopeDegraded = iota
	hopeDown
	hopeDraining
	hopeless
)

func hopeOf(h isobar.HealthStatus) int {
	switch h {
	case isobar.Degraded:
		return hopeDegraded
	case isobar.Draining:
		return hopeDraining
	default:
		return hopeDown
	}
}

func mostHopeful(g *isobar.EndpointGroup) int {
	best := hopeless
	for k := range g.Endpoints {
		best = min(best, hopeOf(g.Endpoints[k].Health))
	}
	return best
}

// opened returns the group as clients get it when nothing is healthy. gRPC drops
// endpoints that are told to be unhealthy, and Envoy would ignore all weights
// in panic; so those that are used are published as unknown.
func opened(g *isobar.EndpointGroup, worst int) *isobar.EndpointGroup {
	out := &isobar.EndpointGroup{Locality: g.Locality, Metadata: g.Metadata, Endpoints: slices.Clone(g.Endpoints)}
	for k := range out.Endpoints {
		if hopeOf(out.Endpoints[k].Health) <= worst {
			out.Endpoints[k].Health = isobar.Unknown
		}
	}
	return out
}

// reuseGroups keeps the pointers of groups that did not change by value.
func reuseGroups(groups, before []*isobar.EndpointGroup, match []int) {
	for i, g := range groups {
		if match[i] < 0 || match[i] >= len(before) {
			continue
		}
		old := before[match[i]]
		if old != nil && g != nil && old != g && old.Equal(g) {
			groups[i] = old
		}
	}
}

// matchSites finds, for each site, its index among the sites before; -1 when
// it is new.
func matchSites(sites, before []Site) []int {
	match := make([]int, len(sites))
	for i := range sites {
		l := sites[i].Group.Locality
		match[i] = -1
		if i < len(before) && before[i].Group.Locality == l {
			match[i] = i
			continue
		}
		match[i] = slices.IndexFunc(before, func(b Site) bool { return b.Group.Locality == l })
	}
	return match
}
