package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
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

// use returns a client another route.
func (c *client) use(r *route) {
	c.route = r
	c.population.stale = true
}
