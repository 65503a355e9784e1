package sim

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// isobarLoadAware is Isobar with load_aware_locality in its clients: Isobar says which
// localities are in which priority, and drops; the proxies weigh the localities of a
// priority themselves.
type isobarLoadAware struct {
	*isobarLoop

	proxies *loadAware
}

func newIsobarLoadAware(w *world) (balancer, error) {
	loop, err := newIsobar(w)
	if err != nil {
		return nil, err
	}
	for _, c := range w.clients {
		c.own = true
	}
	return &isobarLoadAware{isobarLoop: loop.(*isobarLoop), proxies: newAware(w)}, nil //nolint:forcetypeassert // made above
}

// outliers is that of the cluster in the bootstrap that `isobar bootstrap envoy --service`
// prints, in which another policy has the place of Isobar's weights. It has the defaults of
// the clusters that Isobar serves, and no limit of requests in progress.
func (b *isobarLoadAware) outliers(c *client) Ejection {
	if !b.w.sc.Served || c.kind != dataplane.Envoy {
		return Ejection{}
	}
	return served(&isobar.Service{}, 0)
}

func (b *isobarLoadAware) step(time.Duration) error {
	for _, c := range b.w.clients {
		due, v := b.w.looks(c, drawStart, awarePeriod), &b.proxies.proxies[c.id]
		changed := v.obeys != c.assignment
		if c.assignment == nil || !due && !changed {
			continue
		}
		if changed {
			first := v.obeys == nil
			b.proxies.follow(c)
			due = due || first
		}
		if due {
			b.proxies.weigh(c)
		}
		b.reroute(c)
	}
	return nil
}

// reroute follows the ejections of a client, and its assignment.
func (b *isobarLoadAware) reroute(c *client) {
	if c.assignment == nil {
		return
	}
	b.proxies.route(c)
	if d := toldDrop(c.assignment, c.population.class); d > 0 {
		c.route.drop(d)
	}
}

// follow takes over the priorities of the client's assignment. Localities that are new
// in a priority have no weight before the next second.
func (b *loadAware) follow(c *client) {
	s, v := c.population.group.service, &b.proxies[c.id]
	old := v.tiers
	v.obeys, v.factor, v.tiers = c.assignment, c.assignment.OverprovisioningFactor, nil
	for p, localities := range c.assignment.Priorities {
		var sites []int
		for i := range s.sites {
			if slices.ContainsFunc(localities, func(x isobar.LocalityWeight) bool { return x.Locality == s.sites[i].locality && x.Usable() > 0 }) {
				sites = append(sites, i)
			}
		}
		t := b.tier(c, sites)
		if p < len(old) {
			t.healthy, t.all = old[p].healthy, old[p].all
		}
		v.tiers = append(v.tiers, t)
	}
}

// drop lets a route that drops nothing drop a share.
func (r *route) drop(share float64) {
	for e := range r.endpoint {
		r.endpoint[e] *= 1 - share
	}
	for i := range r.site {
		r.site[i] *= 1 - share
	}
	r.dropped, r.lost = share, r.lost*(1-share)
}
