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
	known    health.Table  // what everybody knows about endpoints
	reports  bool          // clients report load
	requests *requests     // nil = requests are rates
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

	slow    float64 // ms that each request takes longer, without a server being busy
	failing float64 // part of the requests that fails whatever the load
	station station // in place of queue, where single requests are played
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

// change brings capacities and failures up to date; it tells whether what is
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
			e.up = !w.isDown(s, i, w.now, false)
			if !e.up {
				e.queue.clear()
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

// mark tells everybody about an endpoint.
func (w *world) mark(s *service, e *endpoint) {
	key := health.Key{Service: s.spec.Name, Address: e.address}
	if e.usable {
		w.known = w.known.Without(func(k health.Key) bool { return k == key })
		return
	}
	w.known = w.known.With(health.Override{Key: key, Status: isobar.Unhealthy})
}

func (s *service) capacities() {
	for i := range s.sites {
		x := &s.sites[i]
		x.capacity, x.nominal = 0, 0
		for j := x.first; j < x.end; j++ {
			k := s.endpoints[j].declared * x.factor
			x.nominal += k
			if s.endpoints[j].up {
				x.capacity += k
			}
		}
	}
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

// isDown tells whether an endpoint fails at a moment, or, of what health checks
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
