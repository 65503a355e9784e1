package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/policy"
	"github.com/isobar-xds/isobar/solver"
)

// localPolicy is decided by each proxy alone, from what is known about
// endpoints: a function of capacity, health and distance, at once.
type localPolicy struct {
	idle

	w    *world
	flow policy.Func
}

func local(flow policy.Func) func(w *world) (balancer, error) {
	return func(w *world) (balancer, error) { return &localPolicy{w: w, flow: flow}, nil }
}

func (b *localPolicy) health(time.Duration) error {
	for _, s := range b.w.services {
		demand := make([]float64, len(s.groups))
		for i := range demand {
			demand[i] = 1
		}
		p := s.problem(demand, s.believed())
		flows, err := b.flow(p)
		if err != nil {
			return err
		}
		for i, g := range s.groups {
			g.useAll(s.spread(flows[i]))
		}
	}
	return nil
}

// useAll gives all clients of a group the same route.
func (g *group) useAll(r *route) {
	for _, c := range g.clients {
		c.use(r)
	}
}

// believed is the capacity of each site as declared and by known health,
// requests/s, with the requests that its usable endpoints work on at once.
func (s *service) believed() []solver.Locality {
	out := make([]solver.Locality, len(s.sites))
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if x := &s.endpoints[e]; x.usable {
				out[i].Capacity += x.declared
				out[i].Servers += x.servers
				out[i].Queues++
			}
		}
	}
	return s.settings(out)
}

// leastCapacity is what counts as none, requests/s, as it does for the solver.
const leastCapacity = 1e-6

func (s *service) settings(sites []solver.Locality) []solver.Locality {
	for i := range sites {
		if sites[i].Capacity < leastCapacity {
			sites[i] = solver.Locality{}
		}
		sites[i].Queues = max(1, sites[i].Queues)
		sites[i].Ceiling = s.sites[i].ceiling
		sites[i].Background = s.spec.Localities[i].UnmanagedLoad
	}
	return sites
}

// problem states what there is to decide about a service; demand is in the
// order of its groups.
func (s *service) problem(demand []float64, sites []solver.Locality) policy.Problem {
	p := policy.Problem{Service: solver.Service{Demand: demand, Localities: sites, MaxShed: s.spec.MaxShed}}
	for _, g := range s.groups {
		p.Sources = append(p.Sources, g.source)
		p.Latency = append(p.Latency, g.latency)
	}
	for i := range s.sites {
		p.Places = append(p.Places, s.sites[i].locality)
	}
	return p
}

// failover is plain locality load balancing, as service meshes configure it:
// endpoints of the own zone, then of the own region, then all others, by health
// alone, with the data plane's overprovisioning.
type failover struct {
	idle

	w *world
}

func newFailover(w *world) (balancer, error) { return &failover{w: w}, nil }

func (b *failover) health(time.Duration) error {
	for _, s := range b.w.services {
		for _, g := range s.groups {
			a := s.failoverOf(g)
			for _, c := range g.clients {
				c.use(g.routeOf(a, c.kind, c.population.class))
			}
		}
	}
	return nil
}

// failoverOf puts the sites into priorities by what they share with the source.
func (s *service) failoverOf(g *group) *isobar.Assignment {
	a := &isobar.Assignment{
		Service: s.spec.Name, Source: g.source,
		OverprovisioningFactor: dataplane.DefaultOverprovisioningFactor,
	}
	tiers := [3][]isobar.LocalityWeight{}
	for i := range s.sites {
		l := s.sites[i].locality
		tier := 2
		switch {
		case l.ZoneOnly() == g.source.ZoneOnly():
			tier = 0
		case l.Region == g.source.Region:
			tier = 1
		}
		weight := uint32(s.sites[i].end - s.sites[i].first) //nolint:gosec // a count
		tiers[tier] = append(tiers[tier], isobar.LocalityWeight{EndpointGroup: s.endpointGroup(i), Weight: max(1, weight)})
	}
	for _, t := range tiers {
		if len(t) > 0 {
			slices.SortFunc(t, func(a, b isobar.LocalityWeight) int { return cmp.Or(a.Locality.Compare(b.Locality)) })
			a.Priorities = append(a.Priorities, t)
		}
	}
	return a
}

// endpointGroup is a site as clients get it, with what is known about its
// endpoints.
func (s *service) endpointGroup(i int) *isobar.EndpointGroup {
	x := &s.sites[i]
	out := &isobar.EndpointGroup{Locality: x.locality}
	for e := x.first; e < x.end; e++ {
		h := isobar.Healthy
		if !s.endpoints[e].usable {
			h = isobar.Unhealthy
		}
		out.Endpoints = append(out.Endpoints, isobar.WeightedEndpoint{Address: s.endpoints[e].address, Weight: 1, Health: h})
	}
	return out
}
