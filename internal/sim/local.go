package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/policy"
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
		p := s.problem(demand, s.declared())
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

// useAll returns all clients of a group the same route.
func (g *group) useAll(r *route) {
	for _, c := range g.clients {
		c.use(r)
	}
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
			a := g.failover()
			for _, c := range g.clients {
				if c.ejections != nil {
					b.reroute(c)
					continue
				}
				c.use(g.routeOf(a, c.kind, c.population.class))
			}
		}
	}
	return nil
}

func (b *failover) outliers(*client) Ejection { return b.w.sc.Ejection }

// reroute follows the ejections of a client, whose cluster has no weights of localities: each
// healthy endpoint of a priority gets the same, whatever its locality has lost.
//
// Source: Envoy, "Locality weighted load balancing": without locality_weighted_lb_config, Envoy
// ignores the weights of localities.
func (b *failover) reroute(c *client) {
	s := c.population.group.service
	a := c.population.group.failover()
	tiers, hosts := make([][]int, len(a.Priorities)), make([]dataplane.Hosts, len(a.Priorities))
	for p := range a.Priorities {
		for _, lw := range a.Priorities[p] {
			i := slices.IndexFunc(s.sites, func(x site) bool { return x.locality == lw.Locality })
			tiers[p] = append(tiers[p], i)
			hosts[p].Total += int(hostsOf(s, i, anyEndpoint))
			hosts[p].Healthy += int(hostsOf(s, i, c.listed))
		}
	}
	r := newRoute(s)
	for p, l := range dataplane.EnvoyLoads(hosts, a.OverprovisioningFactor, dataplane.DefaultPanicThreshold) {
		eligible, n := c.listed, hosts[p].Healthy
		if l.Panic {
			eligible, n = anyEndpoint, hosts[p].Total
		}
		for _, i := range tiers[p] {
			for e := s.sites[i].first; e < s.sites[i].end; e++ {
				if eligible(e) {
					r.add(s, e, float64(l.Healthy)/100/float64(n))
				}
			}
		}
	}
	if r.lost < 1e-9 {
		r.lost = 0
	}
	c.use(r)
}

// failover puts the sites into priorities by what they share with the source.
func (g *group) failover() *isobar.Assignment {
	s := g.service
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
