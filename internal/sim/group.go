package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// group is all clients of a service in one source locality.
type group struct {
	service     *service
	source      isobar.Locality
	latency     []float64 // per site, ms
	populations []*population
	clients     []*client

	rate float64   // requests/s in this step
	mix  []float64 // per site: share of the rate, at the last look

	// What was last published for it, and since when enough clients obey: not the
	// assignment, but the last one that changed more than what classes drop.
	assignment *isobar.Assignment
	base       *isobar.Assignment
	obeying    int
	acked      time.Time
	routes     []knownRoute
}

// population is clients that are alike and share a rate evenly.
type population struct {
	group   *group
	source  *Source // nil for instances of a service that calls this one
	name    string  // of the client service
	class   isobar.Class
	index   uint64
	clients []*client
	rate    float64 // requests/s of all of them in this step
	sent    float64 // requests in this step, where single ones are played

	// The mean of its clients' routes; stale when one of them has changed.
	mean  route
	stale bool
}

// route is what a client does with its requests.
type route struct {
	endpoint []float64 // share of all its requests, per endpoint of the service
	site     []float64 // the same summed per site
	dropped  float64   // share that it drops as told
	lost     float64   // share for which it has no endpoint at all
}

func newRoute(s *service) *route {
	return &route{endpoint: make([]float64, len(s.endpoints)), site: make([]float64, len(s.sites)), lost: 1}
}

// add lets a share of the requests go to an endpoint.
func (r *route) add(s *service, endpoint int, share float64) {
	r.endpoint[endpoint] += share
	r.site[s.endpoints[endpoint].at] += share
	r.lost = max(0, r.lost-share)
}

func (w *world) addSource(src *Source, index int) error {
	s, ok := w.find(src.Service)
	if !ok {
		return fmt.Errorf("sim: %w: source %s sends to service %q, which is not there", isobar.ErrInvalid, src.From, src.Service)
	}
	n := src.Clients
	if n <= 0 {
		n = defaultClients
	}
	w.populate(w.group(s, src.From), src, cmp.Or(src.Client, defaultClient), uint64(index), n) //nolint:gosec // an index
	return nil
}

// group finds the clients of a service in a locality, or makes it.
func (w *world) group(s *service, from isobar.Locality) *group {
	if i := slices.IndexFunc(s.groups, func(g *group) bool { return g.source == from }); i >= 0 {
		return s.groups[i]
	}
	g := &group{service: s, source: from, mix: make([]float64, len(s.sites))}
	for i := range s.sites {
		ms, _ := w.sc.Topology.Network.Latency(from, s.sites[i].locality)
		g.latency = append(g.latency, ms)
	}
	s.groups = append(s.groups, g)
	return g
}

func (w *world) populate(g *group, src *Source, name string, index uint64, n int) *population {
	p := &population{
		group: g, source: src, name: name, class: g.service.spec.Criticality.ClassOf(name), index: index,
		stale: true, mean: *newRoute(g.service),
	}
	for i := range n {
		c := &client{population: p, phase: w.sc.Interval * time.Duration(i) / time.Duration(n), lie: 1, route: newRoute(g.service)}
		if src != nil {
			c.kind = src.Kind
			c.silent = i < src.Silent
			c.liar = i >= n-src.Liars
		}
		p.clients = append(p.clients, c)
	}
	g.populations = append(g.populations, p)
	return p
}

// maxCallers bounds the streams that stand for the instances of a caller in one
// locality.
const maxCallers = 5

// addCalls makes clients of the endpoints that call other services.
func (w *world) addCalls() error {
	for _, s := range w.services {
		for _, c := range s.spec.Calls {
			to, ok := w.find(c.Service)
			if !ok {
				return fmt.Errorf("sim: %w: %s calls service %q, which is not there", isobar.ErrInvalid, s.spec.Name, c.Service)
			}
			one := call{to: to, perRequest: c.PerRequest}
			for i := range s.sites {
				g, n := w.group(to, s.sites[i].locality), min(maxCallers, max(1, s.sites[i].end-s.sites[i].first))
				one.callers = append(one.callers, w.populate(g, nil, s.spec.Name, 0, n))
			}
			s.calls = append(s.calls, one)
		}
	}
	return nil
}

// enrol numbers the clients of a group.
func (w *world) enrol(g *group) {
	for _, p := range g.populations {
		for _, c := range p.clients {
			w.clients = append(w.clients, c)
			c.id = uint64(len(w.clients))
			c.node = c.describe()
			c.counts = make([]count, len(g.service.sites))
			g.clients = append(g.clients, c)
		}
	}
}

// average brings the mean of the clients' routes up to date.
func (p *population) average() {
	if !p.stale {
		return
	}
	p.stale = false
	m := &p.mean
	clear(m.endpoint)
	clear(m.site)
	m.dropped, m.lost = 0, 0
	n := float64(len(p.clients))
	for _, c := range p.clients {
		for e, x := range c.route.endpoint {
			m.endpoint[e] += x / n
		}
		for i, x := range c.route.site {
			m.site[i] += x / n
		}
		m.dropped += c.route.dropped / n
		m.lost += c.route.lost / n
	}
}

// use gives a client another route.
func (c *client) use(r *route) {
	c.route = r
	c.population.stale = true
}

// spread makes the route of a client that knows the endpoints' health and sends
// these shares to the sites, evenly over their usable endpoints. Shares of
// sites without any are spread over the others.
func (s *service) spread(shares []float64) *route {
	usable := make([]float64, len(s.sites))
	sum := 0.0
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if s.endpoints[e].usable {
				usable[i]++
			}
		}
		if usable[i] > 0 {
			sum += shares[i]
		}
	}
	r := newRoute(s)
	if sum <= 0 {
		return r
	}
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if s.endpoints[e].usable && shares[i] > 0 {
				r.add(s, e, shares[i]/sum/usable[i])
			}
		}
	}
	r.lost = 0
	return r
}

// knownRoute remembers what an assignment amounts to.
type knownRoute struct {
	assignment *isobar.Assignment
	kind       dataplane.Kind
	drop       float64
	route      *route
}

// maxRoutes bounds how many assignments of a group are remembered.
const maxRoutes = 16

// routeOf works out what clients of a kind and class do with an assignment.
func (g *group) routeOf(a *isobar.Assignment, kind dataplane.Kind, class isobar.Class) *route {
	drop := toldDrop(a, class)
	for i := range g.routes {
		if x := &g.routes[i]; x.assignment == a && x.kind == kind && x.drop == drop {
			return x.route
		}
	}
	r := predicted(g.service, a.Dropping(drop), kind)
	if len(g.routes) >= maxRoutes {
		g.routes = slices.Delete(g.routes, 0, 1)
	}
	g.routes = append(g.routes, knownRoute{a, kind, drop, r})
	return r
}

// predicted is what the data plane does with an assignment.
func predicted(s *service, a *isobar.Assignment, kind dataplane.Kind) *route {
	r := newRoute(s)
	p := dataplane.PredictAssignment(a, kind, dataplane.DefaultOptions())
	pass := p.PassPercent / 100
	for i := range p.Priorities {
		for j := range p.Priorities[i].Localities {
			l := &p.Priorities[i].Localities[j]
			at := slices.IndexFunc(s.sites, func(x site) bool { return x.locality == l.Locality })
			if at < 0 {
				continue
			}
			for k := range l.Endpoints {
				if share := l.Endpoints[k].Share; share > 0 {
					r.add(s, s.sites[at].first+k, pass*share)
				}
			}
		}
	}
	r.dropped = 1 - pass
	r.lost = max(0, r.lost-r.dropped)
	if r.lost < 1e-9 {
		r.lost = 0
	}
	return r
}
