package sim

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// client is one process: one stream of assignments, one of load reports.
type client struct {
	population *population
	id         uint64
	kind       dataplane.Kind
	silent     bool
	liar       bool
	lie        float64 // factor on what it reports now

	route      *route
	assignment *isobar.Assignment // that it obeys
	base       *isobar.Assignment // of it, see group
	pending    []push             // in order
	last       time.Duration      // when the newest of them arrives
	pushes     uint64

	credit []float64 // per site: what it is owed of the client's next requests
	turn   []int     // per site: the endpoint that was chosen last

	ejections []ejection    // per endpoint; nil = it ejects none
	threads   workerThreads // where it ejects any
	outlier   Ejection      // by which it does
	blind     bool          // it knows of endpoints only by its own requests
	limit     uint32        // of requests in progress; 0 = none
	own       bool          // its cluster is not the one that Isobar serves
	told      []told        // per endpoint; nil = answers tell nothing
	heard     []told        // per site, the same where requests are rates

	phase    time.Duration // of its reports, below the interval
	counts   []count       // per site, since the last report
	dropped  float64
	refused  float64       // by its limit, since the last report
	reported time.Duration // end of the last window
	windows  uint64
	node     load.Node     // what it reports of itself
	arriving []arrival     // in order
	sent     time.Duration // when the newest report arrives
}

// push is an assignment on its way to a client.
type push struct {
	due        time.Duration
	assignment *isobar.Assignment
	base       *isobar.Assignment
}

// count is what a client sent to a site since its last report.
type count struct {
	issued, errors    float64
	succeeded         float64 // where single requests are played; else what did not fail
	measured, metrics float64 // requests that carried a utilization, and its sum
	busy              float64 // requests in progress
	part              float64 // of a request that the gauges so far left out
}

// gauge is the number of requests in progress, which is whole: what is left over
// counts the next time, so that the mean is right.
func (k *count) gauge() uint32 {
	whole := math.Floor(min(k.busy+k.part, math.MaxUint32))
	k.part = min(1, k.busy+k.part-whole)
	return uint32(whole)
}

// deliver puts the assignments into use that have arrived.
func (w *world) deliver() {
	w.inParts(func(services []*service) {
		for c := range clientsOf(services) {
			if len(c.pending) > 0 && w.sc.lost(Pushes, c.population.group.source, w.now) != nil {
				c.await(w.now + w.step)
				continue
			}
			for len(c.pending) > 0 && c.pending[0].due <= w.now {
				w.obey(c, &c.pending[0])
				c.pending = c.pending[1:]
			}
		}
	})
}

// await keeps the newest assignment until a moment, instead of those that should
// have arrived by then.
func (c *client) await(until time.Duration) {
	c.pending = c.pending[len(c.pending)-1:]
	c.pending[0].due = max(c.pending[0].due, until)
}

// clientsOf goes through the clients of services, in the order of their ids.
func clientsOf(services []*service) iter.Seq[*client] {
	return func(yield func(*client) bool) {
		for _, s := range services {
			for _, g := range s.groups {
				for _, c := range g.clients {
					if !yield(c) {
						return
					}
				}
			}
		}
	}
}

// ackShare is the share of a source's clients that have to obey an assignment
// before what they report says anything about it.
const ackShare = 0.95

func (w *world) obey(c *client, p *push) {
	g, before, old := c.population.group, c.base, c.assignment
	c.assignment, c.base = p.assignment, p.base
	if c.ejections != nil {
		w.requests.update(c, w.now.Seconds(), sameEndpoints(old, c.assignment))
	} else {
		c.use(g.routeOf(p.assignment, c.kind, c.population.class))
	}
	if p.base != g.base || p.base == before {
		return
	}
	g.obeying++
	if g.acked.IsZero() && float64(g.obeying) >= ackShare*float64(len(g.clients)) {
		g.acked = startTime.Add(p.due)
	}
}

// sameEndpoints reports whether two assignments have the same endpoints in each priority,
// whatever their weights.
func sameEndpoints(a, b *isobar.Assignment) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Priorities, b.Priorities, func(x, y []isobar.LocalityWeight) bool {
		return slices.EqualFunc(x, y, func(x, y isobar.LocalityWeight) bool {
			return x.EndpointGroup == y.EndpointGroup || x.Locality == y.Locality &&
				slices.EqualFunc(x.Endpoints, y.Endpoints, func(x, y isobar.WeightedEndpoint) bool { return x.Address == y.Address })
		})
	})
}

// publish sends an assignment to all clients of a group, unless they have it or
// it is on its way.
func (w *world) publish(g *group, a *isobar.Assignment, now time.Duration) {
	if a == nil || g.assignment == a {
		return
	}
	if !sameButDrops(g.assignment, a) {
		g.base, g.obeying, g.acked = a, 0, time.Time{}
	}
	g.assignment = a
	for _, c := range g.clients {
		c.pushes++
		d := w.sc.PushDelay
		c.last = max(c.last, now+d.Base+time.Duration(float64(d.Jitter)*draw(w.sc.Seed, drawPush, c.id, c.pushes)))
		c.pending = append(c.pending, push{due: c.last, assignment: a, base: g.base})
	}
}

// arrival is a report on its way.
type arrival struct {
	due    time.Duration
	report load.Report
}

// report closes the windows that end now.
func (w *world) report(now time.Duration) {
	if !w.reports {
		return
	}
	w.inParts(func(services []*service) {
		for c := range clientsOf(services) {
			if !c.silent && (now-c.phase)%w.sc.Interval < w.step && now > c.reported && w.sc.lost(plan.InputReports, c.population.group.source, now) == nil {
				w.send(c, now)
			}
		}
	})
}

// send closes a client's window and sends its report off.
func (w *world) send(c *client, now time.Duration) {
	c.windows++
	if c.liar {
		c.lie = c.population.source.lieAt(c.reported)
	}
	d := w.sc.ReportDelay
	c.sent = max(c.sent, now+d.Base+time.Duration(float64(d.Jitter)*draw(w.sc.Seed, drawReport, c.id, c.windows)))
	c.arriving = append(c.arriving, arrival{due: c.sent, report: c.window(now, startTime.Add(c.sent))})
}

// window is what a client reports for the time since its last report. Counters are
// whole numbers; what is left over stays for the next window.
func (c *client) window(now time.Duration, arrived time.Time) load.Report {
	s := c.population.group.service
	single := c.credit != nil
	sr := load.ServiceReport{Service: s.spec.Name, Interval: now - c.reported}
	for i := range c.counts {
		k := &c.counts[i]
		issued := whole(k.issued)
		errors := min(whole(k.errors), issued)
		succeeded := issued - errors
		if single {
			errors, succeeded = whole(k.errors), whole(k.succeeded)
			k.succeeded = 0
		}
		k.issued -= float64(issued)
		k.errors -= float64(errors)
		if issued > 0 || errors+succeeded > 0 || (single && k.busy > 0) {
			lr := load.LocalityReport{
				Locality: &s.sites[i].locality, Issued: c.lied(issued), HasIssued: true,
				Succeeded: c.lied(succeeded), Errors: c.lied(errors+succeeded) - c.lied(succeeded),
				InProgress: c.gauge(k),
			}
			if k.measured >= 1 {
				lr.Details = s.report(i, c.lied(whole(k.measured)), k.metrics/k.measured)
			}
			sr.Localities = append(sr.Localities, lr)
		}
		k.measured, k.metrics = 0, 0
	}
	dropped := whole(c.dropped)
	c.dropped -= float64(dropped)
	if dropped > 0 {
		sr.Dropped = c.lied(dropped)
		sr.DroppedBy = []load.DropCount{{Category: isobar.DropCategory, Count: sr.Dropped}}
	}
	sr.Dropped += c.lied(whole(c.refused)) // they are errors, too
	c.refused = 0
	c.reported = now
	return load.Report{Arrived: arrived, Services: []load.ServiceReport{sr}}
}

// gauge is what a client reports of its requests in progress.
func (c *client) gauge(k *count) uint32 {
	n := k.gauge()
	if src := c.population.source; c.liar && src != nil && src.LieInProgress != nil {
		return uint32(min(math.MaxUint32, max(0, *src.LieInProgress*float64(n))))
	}
	return n
}

func (c *client) lied(n uint64) uint64 { return whole(c.lie * float64(n)) }

func whole(x float64) uint64 { return uint64(max(0, x) + 1e-9) }

// collect returns the window of every stream of some services, also empty ones, as
// a server does, in memory that is used again.
func collect(services []*service, now time.Duration, out []load.StreamWindow) []load.StreamWindow {
	out = out[:0]
	for c := range clientsOf(services) {
		if c.silent {
			continue
		}
		x := load.StreamWindow{Stream: load.StreamID(c.id), Opened: startTime, Node: c.node}
		n := 0
		for n < len(c.arriving) && c.arriving[n].due <= now {
			x.Reports = append(x.Reports, c.arriving[n].report)
			n++
		}
		c.arriving = slices.Delete(c.arriving, 0, n)
		out = append(out, x)
	}
	return out
}

// describe is what it reports of itself.
func (c *client) describe() load.Node {
	agent := load.AgentEnvoy
	if c.kind == dataplane.GRPC {
		agent = load.AgentGRPC
	}
	return load.Node{ID: fmt.Sprintf("client-%d", c.id), Cluster: c.population.name, Locality: c.population.group.source, Agent: agent}
}

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

// limit lets Envoys obey another limit of requests in progress. It is another cluster,
// which knows nothing of what the one before learned.
func (w *world) limit(services []*service, p *plan.Plan) {
	if !w.sc.Served || w.requests == nil {
		return
	}
	for _, s := range services {
		limit := p.RequestLimit(s.spec.Name)
		for _, g := range s.groups {
			for _, c := range g.clients {
				if !c.own && c.limit != limit {
					w.recluster(c, limit)
				}
			}
		}
	}
}

func (w *world) recluster(c *client, limit uint32) {
	c.limit = limit
	if c.ejections != nil {
		clear(c.ejections)
		c.outlier = w.ejecting.outliers(c)
		w.requests.update(c, w.now.Seconds(), false)
	}
}

// full reports whether the client may have no more requests in progress.
func (c *client) full() bool {
	if c.limit == 0 {
		return false
	}
	busy := 0.0
	for i := range c.counts {
		busy += c.counts[i].busy
	}
	return busy >= float64(c.limit)
}
