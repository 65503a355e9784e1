package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

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
