package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// world is the fleet while it runs.
type world struct {
	sc       *Scenario
	step     time.Duration
	now      time.Duration // beginning of the step
	services []*service    // in the order of the topology
	clients  []*client     // of all services, in order
	known    health.Table  // the endpoints' health as all clients know it
	reports  bool          // clients report load
	requests *requests     // nil = requests are rates
	ejecting ejecting      // nil = clients eject no endpoints
}

// service is one service of the fleet.
type service struct {
	spec      *isobar.Service
	index     int
	sites     []site     // as in spec.Localities
	endpoints []endpoint // of all sites, in order
	groups    []*group   // sorted by source
	calls     []call
	metrics   []Metric // that its endpoints report, beside utilization
}

// call is a call to another service.
type call struct {
	to         *service
	perRequest float64
	callers    []*population // of the called service, per site of the caller
}

// site is a service in one locality.
type site struct {
	locality    isobar.Locality
	first, end  int     // its endpoints
	factor      float64 // true capacity over declared
	nominal     float64 // true capacity if all endpoints were up, requests/s
	arrived     float64 // requests/s in this step at endpoints that are up
	served      float64 // requests/s in this step
	noise       float64 // factor on its utilization as it is reported
	ceiling     float64
	capacity    float64 // true capacity of the endpoints that are up, requests/s
	utilization float64 // arrived over capacity, in this step
}

// endpoint is one address.
type endpoint struct {
	address  string
	declared float64 // requests/s
	servers  float64 // requests that it works on at once
	queue    queue

	up      bool // serves
	usable  bool // is known to be up
	at      int  // its site
	arrived float64
	ok      float64 // fraction of the arrivals in this step that are served
	stay    float64 // mean time at the endpoint in this step, ms

	previous float64 // requests present before this step, while it is taken

	slow    float64    // ms that each request takes longer, without a server being busy
	failing float64    // part of the requests that fails whatever the load
	workers workerPool // in place of queue, where single requests are played
}

func newWorld(sc *Scenario) (*world, error) {
	w := &world{sc: sc, step: sc.defaultStep()}
	if sc.Topology == nil || w.step <= 0 || sc.Tick < w.step || sc.Interval < w.step || sc.Length < sc.Tick || sc.Warmup >= sc.Length {
		return nil, fmt.Errorf("sim: %w: step, tick, interval, warm-up and length must grow in this order", isobar.ErrInvalid)
	}
	for i := range sc.Topology.Services {
		w.services = append(w.services, newService(&sc.Topology.Services[i], i))
	}
	for _, m := range sc.Metrics {
		if s, ok := w.find(m.Service); ok {
			s.metrics = append(s.metrics, m)
		}
	}
	for i := range sc.Sources {
		if err := w.addSource(&sc.Sources[i], i); err != nil {
			return nil, err
		}
	}
	if err := w.addCalls(); err != nil {
		return nil, err
	}
	for _, s := range w.services {
		slices.SortFunc(s.groups, func(a, b *group) int { return a.source.Compare(b.source) })
		for _, g := range s.groups {
			w.enrol(g)
		}
	}
	if sc.Requests {
		w.requests = newRequests(w)
	}
	return w, nil
}

// defaultStep is the step that the scenario asks for, or one that fits its size.
func (sc *Scenario) defaultStep() time.Duration {
	clients := 0
	for i := range sc.Sources {
		clients += cmp.Or(sc.Sources[i].Clients, defaultClients)
	}
	switch {
	case sc.Step > 0:
		return sc.Step
	case clients > largeFleet:
		return sc.Interval / stepsPerReportLarge
	default:
		return sc.Interval / stepsPerReport
	}
}

func (w *world) find(name string) (*service, bool) {
	i, ok := slices.BinarySearchFunc(w.services, name, func(s *service, n string) int { return strings.Compare(s.spec.Name, n) })
	if !ok {
		return nil, false
	}
	return w.services[i], true
}

func newService(spec *isobar.Service, index int) *service {
	s := &service{spec: spec, index: index}
	for i := range spec.Localities {
		sl := &spec.Localities[i]
		x := site{locality: sl.Locality, first: len(s.endpoints), factor: 1, noise: 1, ceiling: cmp.Or(sl.Ceiling, isobar.DefaultCeiling)}
		rates := ratesOf(sl)
		for j := range sl.Endpoints {
			e := &sl.Endpoints[j]
			n := cmp.Or(e.Concurrency, sl.Concurrency/float64(len(sl.Endpoints)),
				rates[j]*cmp.Or(spec.ServiceTimeMS, isobar.DefaultServiceTimeMS)/1000)
			s.endpoints = append(s.endpoints, endpoint{
				address: e.Address, declared: rates[j], servers: n, up: true, usable: e.Health.Usable(), at: i, ok: 1,
			})
		}
		x.end = len(s.endpoints)
		s.sites = append(s.sites, x)
	}
	s.capacities()
	return s
}

// ratesOf is the declared capacity of each endpoint: its own, else an equal
// part of what the locality's leaves.
func ratesOf(sl *isobar.ServiceLocality) []float64 {
	out := make([]float64, len(sl.Endpoints))
	rest, without := sl.MaxRate, 0.0
	for i := range sl.Endpoints {
		out[i] = sl.Endpoints[i].MaxRate
		rest -= out[i]
		if out[i] == 0 {
			without++
		}
	}
	for i := range out {
		if out[i] == 0 {
			out[i] = max(0, rest) / without
		}
	}
	return out
}

// advance takes one step.
func (w *world) advance(b balancer) error {
	if w.change() || w.now == 0 {
		if err := b.health(w.now); err != nil {
			return err
		}
	}
	w.deliver()
	if err := b.step(w.now); err != nil {
		return err
	}
	w.trouble()
	w.readmit()
	if w.requests != nil {
		w.requests.step()
		return nil
	}
	w.flow()
	return nil
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
			for i := range c.counts { // equal clients do not leave out parts of requests in the same windows
				c.counts[i].part = draw(w.sc.Seed, drawGauge, c.id, uint64(i))
			}
			g.clients = append(g.clients, c)
		}
	}
}

// change brings capacities and failures up to date; it reports whether what is
// known about endpoints changed.
func (w *world) change() bool {
	changed := false
	blind := w.now > 0 && w.sc.lost(plan.InputHealth, isobar.Locality{}, w.now) != nil
	if w.now > 0 && len(w.sc.Capacities) == 0 && len(w.sc.Outages) == 0 {
		return false
	}
	for _, s := range w.services {
		for i := range s.sites {
			s.sites[i].factor = w.factor(s, i)
		}
		for i := range s.endpoints {
			e := &s.endpoints[i]
			was := e.up
			e.up = !w.isDown(s, i, w.now, false)
			if !e.up {
				e.queue.clear()
			}
			if was && !e.up && w.requests != nil {
				w.requests.lose(s, i, w.now.Seconds())
			}
			if usable := !w.isDown(s, i, w.now-w.sc.HealthDelay, true); usable != e.usable && !blind {
				e.usable, changed = usable, true
				w.mark(s, e)
			}
		}
		s.capacities()
	}
	return changed
}

// mark sets the health of an endpoint for all clients.
func (w *world) mark(s *service, e *endpoint) {
	key := health.Key{Service: s.spec.Name, Address: e.address}
	if e.usable {
		w.known = w.known.Without(func(k health.Key) bool { return k == key })
		return
	}
	w.known = w.known.With(health.Override{Key: key, Status: isobar.Unhealthy})
}

func (w *world) factor(s *service, i int) float64 {
	f := 1.0
	for j := range w.sc.Capacities {
		c := &w.sc.Capacities[j]
		if (c.Service == "" || c.Service == s.spec.Name) && within(s.sites[i].locality, c.Locality) {
			f *= max(0, c.Factor(w.now))
		}
	}
	return f
}

// isDown reports whether an endpoint fails at a moment, or, of what health checks
// can notice, is configured or seen to.
func (w *world) isDown(s *service, i int, at time.Duration, noticed bool) bool {
	e := &s.endpoints[i]
	x := &s.sites[e.at]
	configured := s.spec.Localities[e.at].Endpoints[i-x.first].Health
	if noticed && !configured.Usable() {
		return true
	}
	for j := range w.sc.Outages {
		o := &w.sc.Outages[j]
		if (o.Service != "" && o.Service != s.spec.Name) || !within(x.locality, o.Locality) || (noticed && o.Unnoticed) {
			continue
		}
		hit := x.end - x.first
		if o.Share > 0 {
			hit = int(o.Share*float64(hit) + 0.5)
		}
		if i-x.first < hit && o.down(at) {
			return true
		}
	}
	return false
}

// trouble brings up to date what happens to requests at each endpoint.
func (w *world) trouble() {
	if len(w.sc.Troubles) == 0 {
		return
	}
	for _, s := range w.services {
		for i := range s.endpoints {
			e := &s.endpoints[i]
			e.slow, e.failing = 0, 0
			for j := range w.sc.Troubles {
				t := &w.sc.Troubles[j]
				if !t.hits(s, e, i, w.now) {
					continue
				}
				e.slow += t.SlowMS
				e.failing = 1 - (1-e.failing)*(1-t.Failing)
				if t.Hangs {
					e.slow, e.failing = 1e9, 1
				}
			}
		}
	}
}

// servingOf is how an endpoint serves: the last rule that concerns it counts.
func (w *world) servingOf(s *service, e *endpoint) *Serving {
	out := &Serving{}
	for i := range w.sc.Serving {
		x := &w.sc.Serving[i]
		if (x.Service == "" || x.Service == s.spec.Name) && within(s.sites[e.at].locality, x.Locality) {
			out = x
		}
	}
	return out
}
