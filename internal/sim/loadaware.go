package sim

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// loadAware is Envoy's load_aware_locality (v1.40) with its defaults: each proxy
// weighs localities by hosts x (1 - utilization) as their answers tell it, once
// a second, smoothed. All stays in the own locality as long as that is hardly
// fuller than the others, but for a probe.
type loadAware struct {
	idle

	w       *world
	proxies []proxyView // by client
}

// The defaults of load_aware_locality.
const (
	awarePeriod    = time.Second
	awareSmoothing = 5 * time.Second
	awareThreshold = 0.1  // of utilization, by which the own locality may be fuller
	awareProbe     = 0.03 // of the traffic goes elsewhere at least
)

// proxyView is what one proxy believes of the sites.
type proxyView struct {
	utilization []float64
	known       []bool
	obeys       *isobar.Assignment // under which its weights were made
}

func newLoadAware(w *world) (balancer, error) { return newAware(w), nil }

func newAware(w *world) *loadAware {
	b := &loadAware{w: w, proxies: make([]proxyView, len(w.clients)+1)}
	for _, c := range w.clients {
		s := c.population.group.service
		n := len(s.sites)
		if w.requests != nil {
			c.told = slices.Repeat([]float64{-1}, len(s.endpoints))
			for i := range s.endpoints {
				s.endpoints[i].station.reports = true
			}
		}
		b.proxies[c.id] = proxyView{utilization: make([]float64, n), known: make([]bool, n)}
	}
	return b
}

func (b *loadAware) health(time.Duration) error {
	for _, c := range b.w.clients {
		b.weigh(c, nil)
	}
	return nil
}

func (b *loadAware) step(now time.Duration) error {
	for _, c := range b.w.clients {
		if awareAt(b.w, c, now) {
			b.observe(c)
			b.weigh(c, nil)
		}
	}
	return nil
}

// awareAt reports whether a proxy weighs its localities again now: each does it at
// moments of its own.
func awareAt(w *world, c *client, now time.Duration) bool {
	phase := time.Duration(draw(w.sc.Seed, drawPhase, c.id) * float64(awarePeriod))
	return (now+phase)%awarePeriod < w.step
}

// observe takes in what the answers of the last second told.
func (b *loadAware) observe(c *client) {
	s, v := c.population.group.service, &b.proxies[c.id]
	alpha := 1 - math.Exp(-float64(awarePeriod)/float64(awareSmoothing))
	for i := range s.sites {
		u, told := c.toldBy(i)
		if !told {
			if c.told != nil {
				v.known[i], v.utilization[i] = false, 0
			}
			continue
		}
		if !v.known[i] {
			v.known[i], v.utilization[i] = true, u
			continue
		}
		v.utilization[i] += alpha * (u - v.utilization[i])
	}
}

// toldBy is the utilization of a site as the last answers of its endpoints told it.
func (c *client) toldBy(site int) (utilization float64, told bool) {
	s := c.population.group.service
	x := &s.sites[site]
	if c.told == nil {
		return s.reportedUtilization(site), c.route.site[site] > 0 && x.served > 0
	}
	n := 0.0
	for e := x.first; e < x.end; e++ {
		if c.available(e) && c.told[e] >= 0 {
			utilization += c.told[e]
			n++
		}
	}
	return utilization / max(1, n), n > 0
}

// reroute keeps to the endpoints that are left.
func (b *loadAware) reroute(c *client) { b.weigh(c, nil) }

// weigh sets the client's route; allowed restricts the sites, nil = all.
func (b *loadAware) weigh(c *client, allowed []bool) {
	g := c.population.group
	s, v := g.service, &b.proxies[c.id]
	hosts := make([]float64, len(s.sites))
	local := -1
	thinks := c.available
	if c.panics() {
		thinks = func(int) bool { return true }
	}
	for i := range s.sites {
		if allowed != nil && !allowed[i] {
			continue
		}
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if thinks(e) {
				hosts[i]++
			}
		}
		if s.sites[i].locality == g.source && hosts[i] > 0 {
			local = i
		}
	}
	c.use(s.spreadOver(v.weights(hosts, local), thinks))
}

// panics reports whether a client has ejected so many endpoints that its proxy uses all
// (healthy_panic_threshold 50).
func (c *client) panics() bool {
	out := 0
	for e := range c.ejections {
		if c.ejections[e].out {
			out++
		}
	}
	return 2*out > len(c.ejections)
}

// weights splits the traffic; local is -1 where the proxy has no hosts in its
// own locality.
func (v *proxyView) weights(hosts []float64, local int) []float64 {
	out := make([]float64, len(hosts))
	sum, remote, average := 0.0, 0.0, 0.0
	for i, h := range hosts {
		out[i] = h * max(0, 1-v.utilization[i])
		sum += out[i]
		if i != local {
			remote += h
			average += h * v.utilization[i]
		}
	}
	if sum <= 0 {
		return hosts // all are overloaded
	}
	if local < 0 || remote == 0 {
		return out
	}
	away := 1 - out[local]/sum
	if v.utilization[local] <= average/remote+awareThreshold {
		away = 0
	}
	if away >= awareProbe {
		return out
	}
	for i, h := range hosts {
		out[i] = awareProbe * h / remote
	}
	out[local] = 1 - awareProbe
	return out
}

// beneath is Isobar with load_aware_locality in its clients: Isobar says which
// localities are in the first tier, and drops; the proxies weigh these
// themselves.
type beneath struct {
	*isobarLoop

	proxies *loadAware
}

func newBeneath(w *world) (balancer, error) {
	loop, err := newIsobar(w)
	if err != nil {
		return nil, err
	}
	return &beneath{isobarLoop: loop.(*isobarLoop), proxies: newAware(w)}, nil //nolint:forcetypeassert // made above
}

func (b *beneath) step(now time.Duration) error {
	for _, c := range b.w.clients {
		due := awareAt(b.w, c, now)
		v := &b.proxies.proxies[c.id]
		if c.assignment == nil || (!due && v.obeys == c.assignment) {
			continue
		}
		if due {
			b.proxies.observe(c)
		}
		v.obeys = c.assignment
		b.proxies.follow(c)
	}
	return nil
}

// follow weighs the localities of the first tier of the client's assignment.
func (b *loadAware) follow(c *client) {
	s := c.population.group.service
	if len(c.assignment.Priorities) == 0 {
		return
	}
	allowed := make([]bool, len(s.sites))
	for _, lw := range c.assignment.Priorities[0] {
		for i := range s.sites {
			if s.sites[i].locality == lw.Locality && lw.Usable() > 0 {
				allowed[i] = true
			}
		}
	}
	b.weigh(c, allowed)
	if d := toldDrop(c.assignment, c.population.class); d > 0 {
		c.route.drop(d)
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
