package sim

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// loadAware is Envoy's load_aware_locality (v1.40) with its defaults: once a second, each
// proxy weighs the localities of a priority by hosts x (1 - utilization), as the answers of
// their endpoints tell it, smoothed. All stays in the own locality as long as that is hardly
// fuller than the others, but for a probe.
//
// Source: Envoy, load_aware_locality_lb.cc: the main thread makes the weights once a second, by
// the health that it knows then, and workers use them whatever happens to the health of endpoints
// meanwhile. Workers choose the priority, and the endpoint in a locality, by the health that they
// know.
type loadAware struct {
	idle

	w       *world
	proxies []proxyView // by client
}

// The defaults of load_aware_locality, and of Envoy's clusters.
const (
	awarePeriod    = time.Second
	awareSmoothing = 5 * time.Second
	awareThreshold = 0.1             // of utilization, by which the own locality may be fuller
	awareProbe     = 0.03            // of the traffic goes elsewhere at least
	awareExpiry    = 3 * time.Minute // after which what an endpoint told counts no longer
	awarePanic     = 50              // percent of the hosts; below it, all are used
)

// proxyView is what one proxy believes of the sites.
type proxyView struct {
	tiers  []tier // the priorities of its cluster
	factor uint32 // for overprovisioning, percent
	obeys  *isobar.Assignment
}

// tier is the localities of a priority.
type tier struct {
	sites []int // the own locality first, as Envoy has them
	local bool  // the first is the own one
	// Envoy weighs twice: by the healthy hosts, and for a panic by all.
	healthy, all weighing
}

// weighing is the weights of sites, and what they are made from.
type weighing struct {
	utilization []float64 // smoothed; below 0 = nothing was told
	weight      []float64 // as of the last second
}

func newWeighing(sites int) weighing {
	return weighing{slices.Repeat([]float64{-1}, sites), make([]float64, sites)}
}

func newLoadAware(w *world) (balancer, error) {
	b := newAware(w)
	for _, c := range w.clients {
		b.restart(c)
	}
	return b, nil
}

func newAware(w *world) *loadAware {
	b := &loadAware{w: w, proxies: make([]proxyView, len(w.clients)+1)}
	for _, c := range w.clients {
		s := c.population.group.service
		if w.requests == nil {
			c.heard = make([]told, len(s.sites))
			continue
		}
		c.told = make([]told, len(s.endpoints))
		for i := range s.endpoints {
			s.endpoints[i].workers.reports = true
		}
	}
	return b
}

// restart begins with one priority that has all sites.
func (b *loadAware) restart(c *client) {
	s := c.population.group.service
	all := make([]int, len(s.sites))
	for i := range all {
		all[i] = i
	}
	b.proxies[c.id] = proxyView{tiers: []tier{b.tier(c, all)}, factor: dataplane.DefaultOverprovisioningFactor}
	b.weigh(c)
}

// tier makes a priority of sites.
func (b *loadAware) tier(c *client, sites []int) tier {
	g := c.population.group
	n := len(g.service.sites)
	t := tier{sites: sites, healthy: newWeighing(n), all: newWeighing(n)}
	if i := slices.IndexFunc(sites, func(i int) bool { return g.service.sites[i].locality == g.source }); i >= 0 {
		t.local = true
		t.sites = slices.Concat(sites[i:i+1], sites[:i], sites[i+1:])
	}
	return t
}

func (b *loadAware) health(time.Duration) error {
	for _, c := range b.w.clients {
		b.route(c)
	}
	return nil
}

func (b *loadAware) step(time.Duration) error {
	for _, c := range b.w.clients {
		if b.w.looks(c, drawStart, awarePeriod) {
			b.weigh(c)
			b.route(c)
		}
	}
	return nil
}

// reroute keeps to the endpoints that are left.
func (b *loadAware) reroute(c *client) { b.route(c) }

func (b *loadAware) outliers(*client) Ejection { return b.w.sc.Ejection }

// weigh takes in what the answers told, and weighs all localities.
func (b *loadAware) weigh(c *client) {
	v := &b.proxies[c.id]
	for i := range v.tiers {
		t := &v.tiers[i]
		t.weigh(c, &t.healthy, c.available, b.w.now)
		t.weigh(c, &t.all, anyEndpoint, b.w.now)
	}
}

func anyEndpoint(int) bool { return true }

// weigh does that for the sites of a priority and those of their hosts that are eligible.
// What is known about a site stays when its hosts are not eligible for a while; hosts that
// have not told anything recently count in full.
func (t *tier) weigh(c *client, x *weighing, eligible func(endpoint int) bool, now time.Duration) {
	s := c.population.group.service
	alpha := 1 - math.Exp(-float64(awarePeriod)/float64(awareSmoothing))
	hosts, headroom := make([]float64, len(t.sites)), make([]float64, len(t.sites))
	utilization := make([]float64, len(t.sites))
	for k, i := range t.sites {
		hosts[k] = hostsOf(s, i, eligible)
		u, told := c.toldBy(i, eligible, now)
		smoothed := &x.utilization[i]
		switch {
		case told && *smoothed < 0:
			*smoothed = u
		case told:
			*smoothed += alpha * (u - *smoothed)
		}
		utilization[k] = max(0, *smoothed)
		headroom[k] = hosts[k] * max(0, 1-utilization[k])
		if !told {
			headroom[k] = hosts[k]
		}
	}
	weights := awareWeights(hosts, utilization, headroom, t.local)
	old := x.utilization
	*x = newWeighing(len(s.sites))
	for k, i := range t.sites {
		x.utilization[i], x.weight[i] = old[i], weights[k]
	}
}

// hostsOf counts the endpoints of a site that are eligible.
func hostsOf(s *service, site int, eligible func(endpoint int) bool) (n float64) {
	for e := s.sites[site].first; e < s.sites[site].end; e++ {
		if eligible(e) {
			n++
		}
	}
	return n
}

// told is the utilization that the last answer of an endpoint, or where requests are rates
// of a site, told.
type told struct {
	utilization float64
	at          time.Duration // 0 = nothing yet
}

// toldBy is the utilization of a site as the last answers of its endpoints told it.
func (c *client) toldBy(site int, eligible func(endpoint int) bool, now time.Duration) (utilization float64, known bool) {
	s := c.population.group.service
	x := &s.sites[site]
	if c.told == nil {
		last := &c.heard[site]
		if c.route.site[site] > 0 && x.served > 0 {
			*last = told{s.reportedUtilization(site), max(1, now)}
		}
		return last.utilization, last.at > 0 && now-last.at <= awareExpiry
	}
	n := 0.0
	for e := x.first; e < x.end; e++ {
		if last := &c.told[e]; eligible(e) && last.at > 0 && now-last.at <= awareExpiry {
			utilization += last.utilization
			n++
		}
	}
	return utilization / max(1, n), n > 0
}

// awareWeights are the weights of localities by their hosts; local says that the first
// is the own one.
func awareWeights(hosts, utilization, headroom []float64, local bool) []float64 {
	sum, remote, average := 0.0, 0.0, 0.0
	for i, h := range hosts {
		sum += headroom[i]
		if i > 0 {
			remote += h
			average += h * utilization[i]
		}
	}
	switch {
	case sum <= 0: // all are overloaded
		return hosts
	case !local || remote == 0:
		return headroom
	case hosts[0] > 0 && utilization[0] <= average/remote+awareThreshold:
		clear(headroom)
		headroom[0], sum = 1, 1
	}
	if lacks := min(sum*awareProbe-(sum-headroom[0]), headroom[0]); lacks > 0 {
		headroom[0] -= lacks
		for i := 1; i < len(hosts); i++ {
			headroom[i] += lacks * hosts[i] / remote
		}
	}
	return headroom
}

// route sends the client's requests by the weights of the last second to the endpoints
// that it uses now.
func (b *loadAware) route(c *client) {
	s, v := c.population.group.service, &b.proxies[c.id]
	hosts := make([]dataplane.Hosts, len(v.tiers))
	for i := range v.tiers {
		for _, site := range v.tiers[i].sites {
			hosts[i].Total += int(hostsOf(s, site, anyEndpoint))
			hosts[i].Healthy += int(hostsOf(s, site, c.listed))
		}
	}
	r := newRoute(s)
	for i, l := range dataplane.EnvoyLoads(hosts, v.factor, awarePanic) {
		t := &v.tiers[i]
		if l.Panic {
			t.spread(s, r, float64(l.Healthy)/100, t.all.weight, anyEndpoint)
		} else {
			t.spread(s, r, float64(l.Healthy)/100, t.healthy.weight, c.listed)
		}
	}
	if r.lost < 1e-9 {
		r.lost = 0
	}
	c.use(r)
}

// spread adds a share of the requests, by weight, evenly over the eligible endpoints of a
// site. Where none is left since the weights were made, the first site that has any gets it.
func (t *tier) spread(s *service, r *route, share float64, weights []float64, eligible func(endpoint int) bool) {
	first, sum := -1, 0.0
	for _, i := range t.sites {
		sum += weights[i]
		if first < 0 && hostsOf(s, i, eligible) > 0 {
			first = i
		}
	}
	if first < 0 || share <= 0 {
		return
	}
	for k, i := range t.sites {
		part := 0.0
		switch {
		case sum > 0:
			part = share * weights[i] / sum
		case k == 0:
			part = share
		}
		n := hostsOf(s, i, eligible)
		if n == 0 {
			i, n = first, hostsOf(s, first, eligible)
		}
		for e := s.sites[i].first; part > 0 && e < s.sites[i].end; e++ {
			if eligible(e) {
				r.add(s, e, part/n)
			}
		}
	}
}
