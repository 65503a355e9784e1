package sim

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// band is decided by each proxy alone, from the latency that it sees: it uses
// the endpoints of its own zone, takes in one further endpoint, the next by
// distance, while these are slower than a band allows, and lets one go when
// they are faster.
type band struct {
	idle

	w       *world
	proxies []bandView // by client
}

// The band, as factors on the time that an unloaded endpoint takes.
const (
	bandPeriod    = 2 * time.Second
	bandSmoothing = 5 * time.Second
	bandLow       = 1.2
	bandHigh      = 1.5
)

type bandView struct {
	order []int   // endpoints of the service by distance
	near  int     // of them, those in the nearest zone that has any
	used  int     // how many are in use
	stay  float64 // smoothed time at the near ones, ms
	least float64 // lowest time seen there, ms
}

func newBand(w *world) (balancer, error) {
	b := &band{w: w, proxies: make([]bandView, len(w.clients)+1)}
	for _, c := range w.clients {
		b.proxies[c.id].least = math.Inf(1)
	}
	return b, nil
}

// health orders again the endpoints that can be used.
func (b *band) health(time.Duration) error {
	for _, c := range b.w.clients {
		g := c.population.group
		s, v := g.service, &b.proxies[c.id]
		v.order = v.order[:0]
		for e := range s.endpoints {
			if s.endpoints[e].usable {
				v.order = append(v.order, e)
			}
		}
		// Neighbours take in the endpoints of equally far zones in turns.
		n := uint64(max(1, len(v.order)))
		slices.SortStableFunc(v.order, func(x, y int) int {
			turn := func(e int) uint64 { return (uint64(e)*golden + c.id) % n } //nolint:gosec // an index
			return cmp.Or(cmp.Compare(g.latency[s.endpoints[x].at], g.latency[s.endpoints[y].at]), cmp.Compare(turn(x), turn(y)))
		})
		v.near = 0
		for v.near < len(v.order) && g.latency[s.endpoints[v.order[v.near]].at] == g.latency[s.endpoints[v.order[0]].at] {
			v.near++
		}
		v.used = min(max(v.used, v.near), len(v.order))
		b.spread(c)
	}
	return nil
}

func (b *band) step(now time.Duration) error {
	second := now%time.Second < b.w.step
	decide := now > 0 && now%bandPeriod < b.w.step
	if !second {
		return nil
	}
	alpha := 1 - math.Exp(-float64(time.Second)/float64(bandSmoothing))
	for _, c := range b.w.clients {
		s, v := c.population.group.service, &b.proxies[c.id]
		if v.near == 0 {
			continue
		}
		stay := 0.0
		for _, e := range v.order[:v.near] {
			stay += s.endpoints[e].stay / float64(v.near)
		}
		if v.stay == 0 {
			v.stay = stay
		}
		v.stay += alpha * (stay - v.stay)
		if stay > 0 {
			v.least = min(v.least, stay)
		}
		before := v.used
		switch {
		case !decide:
		case v.stay > bandHigh*v.least:
			v.used = min(v.used+1, len(v.order))
		case v.stay < bandLow*v.least:
			v.used = max(v.used-1, v.near)
		}
		if v.used != before {
			b.spread(c)
		}
	}
	return nil
}

// spread uses the first endpoints evenly.
func (b *band) spread(c *client) {
	v := &b.proxies[c.id]
	r := newRoute(c.population.group.service)
	for _, e := range v.order[:v.used] {
		r.add(c.population.group.service, e, 1/float64(v.used))
	}
	if v.used > 0 {
		r.lost = 0
	}
	c.use(r)
}
