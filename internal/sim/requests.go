package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/dataplane"
)

// recentWeight is the weight of one request in the mean time at its endpoint.
const recentWeight = 0.05

// requests plays single requests in place of rates: each is sent by one
// client, which chooses the locality by its weights and the endpoint in turn, waits
// in that endpoint's queue, and ends with a success, a failure or a timeout.
type requests struct {
	w       *world
	rng     *rand.Rand
	events  events
	sending []sender // populations that send from outside, with the sum of rates up to each
	records totals   // of the requests that ended in this tick
	hist    histogram
}

// sender is a population and the sum of the rates up to it.
type sender struct {
	p    *population
	upTo float64
}

// request is one request of a client, with what it causes.
type request struct {
	client   *client
	parent   *request // whose service called; nil = it comes from outside
	site     int      // -1 = nowhere
	endpoint int
	began    float64 // seconds, of the first attempt
	sent     float64 // of this one
	tries    int     // so far
	children int     // calls that are not answered yet
	ok       bool
	reported float64 // utilization of the endpoint, when its work was done
}

// event is the end of an attempt, or what else happens at a moment.
type event struct {
	at  float64 // seconds
	seq uint64
	req *request
	ok  bool
	// served says that the attempt took its time at the server, and that calls may
	// follow.
	served bool
	// report says that this is no end: the work is done, and the endpoint writes what
	// it reports into its answer.
	report bool
	// update is the client whose workers learn of updates of its endpoints now, if this is
	// no event of a request.
	update *client
}

// events is a heap, the earliest first; of the same moment, the one that was added
// first.
type events struct {
	list []event
	seq  uint64
}

func (e *events) before(i, j int) bool {
	return e.list[i].at < e.list[j].at || (e.list[i].at == e.list[j].at && e.list[i].seq < e.list[j].seq)
}

func (e *events) add(x event) {
	e.seq++
	x.seq = e.seq
	e.insert(x)
}

func (e *events) insert(x event) {
	e.list = append(e.list, x)
	for i := len(e.list) - 1; i > 0; {
		up := (i - 1) / 2
		if !e.before(i, up) {
			return
		}
		e.list[i], e.list[up] = e.list[up], e.list[i]
		i = up
	}
}

func (e *events) next() event {
	first, n := e.list[0], len(e.list)-1
	e.list[0] = e.list[n]
	e.list = e.list[:n]
	for i := 0; ; {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < n && e.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		e.list[i], e.list[least] = e.list[least], e.list[i]
		i = least
	}
}

func newRequests(w *world) *requests {
	r := &requests{w: w, rng: rand.New(rand.NewPCG(w.sc.Seed, 77))} //nolint:gosec // a simulation
	for _, s := range w.services {
		for i := range s.endpoints {
			e := &s.endpoints[i]
			e.workers = workerPool{serving: w.servingOf(s, e), free: make([]float64, max(1, int(math.Round(e.servers))))}
		}
		for _, g := range s.groups {
			for _, c := range g.clients {
				c.credit = make([]float64, len(s.sites))
				c.turn = make([]int, len(s.sites))
				for i := range s.sites {
					c.credit[i] = r.rng.Float64()
					c.turn[i] = r.rng.IntN(max(1, s.sites[i].end-s.sites[i].first))
				}
			}
		}
	}
	return r
}

// step plays one step.
func (r *requests) step() {
	w := r.w
	from, to := w.now.Seconds(), (w.now + w.step).Seconds()
	all := r.begin()
	next := from + r.rng.ExpFloat64()/max(all, 1e-9)
	for {
		ended := len(r.events.list) > 0 && r.events.list[0].at <= min(next, to)
		switch {
		case ended:
			r.end(r.events.next())
			continue
		case next >= to:
			r.finish()
			return
		}
		r.send(&request{client: r.someClient(all), began: next}, next)
		next += r.rng.ExpFloat64() / all
	}
}

// begin clears what is counted by step, and returns the rate at which requests come
// from outside.
func (r *requests) begin() float64 {
	r.sending = r.sending[:0]
	all := 0.0
	for _, s := range r.w.services {
		for i := range s.sites {
			s.sites[i].arrived, s.sites[i].served = 0, 0
		}
		for _, g := range s.groups {
			g.rate = 0
			for _, p := range g.populations {
				p.average()
				p.sent = 0
				if p.source == nil {
					continue
				}
				if p.rate = r.w.rateOf(p); p.rate > 0 {
					all += p.rate
					r.sending = append(r.sending, sender{p, all})
				}
			}
		}
	}
	return all
}

// finish turns what was counted into rates.
func (r *requests) finish() {
	length := r.w.step.Seconds()
	const smooth = 0.25
	for _, s := range r.w.services {
		for i := range s.sites {
			x := &s.sites[i]
			x.arrived /= length
			x.served /= length
			if x.capacity > 0 {
				x.utilization += (x.arrived/x.capacity - x.utilization) * smooth
			}
		}
		for _, g := range s.groups {
			for _, p := range g.populations {
				if p.source == nil {
					p.rate = p.sent / length
				}
				g.rate += p.rate
			}
		}
	}
}

// lose ends what an endpoint has at a moment at which it goes down, for its clients at once:
// it closes its connections.
func (r *requests) lose(s *service, endpoint int, at float64) {
	all := r.events.list
	r.events.list = nil
	for _, v := range all {
		if q := v.req; q != nil && q.endpoint == endpoint && q.site >= 0 && q.client.population.group.service == s {
			if v.report {
				continue
			}
			v.at, v.ok, v.served = min(v.at, at+q.client.population.group.latency[q.site]/1000), false, false
		}
		r.events.insert(v)
	}
	x := &s.endpoints[endpoint].workers
	clear(x.free)
	x.begin = nil
	x.begun = slices.DeleteFunc(x.begun, func(b begun) bool { return b.at > at })
}

func (r *requests) someClient(all float64) *client {
	at := r.rng.Float64() * all
	i, _ := slices.BinarySearchFunc(r.sending, at, func(s sender, at float64) int {
		if s.upTo <= at {
			return -1
		}
		return 1
	})
	p := r.sending[min(i, len(r.sending)-1)].p
	return p.clients[r.rng.IntN(len(p.clients))]
}

// send lets a client make an attempt.
func (r *requests) send(q *request, at float64) {
	c := q.client
	s := c.population.group.service
	q.sent, q.ok = at, false
	if q.tries == 0 {
		c.population.sent++
	}
	q.tries++
	u := r.rng.Float64()
	if u < c.route.dropped {
		c.dropped++
		r.drop(q)
		return
	}
	q.site = r.chooseSite(c)
	if u < c.route.dropped+c.route.lost || q.site < 0 {
		q.site = -1
		r.events.add(event{at: at + refusal, req: q})
		return
	}
	k := &c.counts[q.site]
	if c.full() {
		c.refused++
		k.errors++
		q.site = -1
		r.events.add(event{at: at + refusal, req: q})
		return
	}
	k.busy++
	x := &s.sites[q.site]
	q.endpoint = r.chooseEndpoint(s, c, q.site)
	e := &s.endpoints[q.endpoint]
	network := c.population.group.latency[q.site] / 1000
	if !e.up || e.declared*x.factor <= 0 {
		r.events.add(event{at: at + network + refusal, req: q})
		return
	}
	k.issued++ // a refused connection is an error that was never issued
	x.arrived++
	mean := float64(len(e.workers.free)) / (e.declared * x.factor)
	// The timeout of Envoy's route is from the end of the request to that of the response, and
	// so has the network's latency in it ("route.timeout" in Envoy's documentation).
	end, ok := e.workers.serve(at, mean, e.slow/1000, e.failing, r.w.timeout()-network, r.rng)
	if ok && c.told != nil {
		r.events.add(event{at: end, req: q, report: true})
	}
	r.events.add(event{at: end + network, req: q, ok: ok, served: true})
}

// chooseSite chooses a locality by the client's weights: Envoy interleaves them,
// gRPC and load_aware_locality draw. It is -1 where the client has none.
func (r *requests) chooseSite(c *client) int {
	sum := 0.0
	for _, v := range c.route.site {
		sum += v
	}
	if sum <= 0 {
		return -1
	}
	if c.kind == dataplane.GRPC || c.told != nil {
		at := r.rng.Float64() * sum
		for i, v := range c.route.site {
			if at -= v; at < 0 {
				return i
			}
		}
	}
	best := -1
	for i, v := range c.route.site {
		if v <= 0 {
			continue
		}
		if c.credit[i] += v / sum; best < 0 || c.credit[i] > c.credit[best] {
			best = i
		}
	}
	c.credit[best]--
	return best
}

// chooseEndpoint takes the endpoints of a site in turn, those that the client
// knows to be up.
func (r *requests) chooseEndpoint(s *service, c *client, site int) int {
	x := &s.sites[site]
	n := x.end - x.first
	for range n {
		c.turn[site] = (c.turn[site] + 1) % n
		if e := x.first + c.turn[site]; c.route.endpoint[e] > 0 {
			return e
		}
	}
	return x.first
}

// end ends an attempt: with calls that follow, another attempt, or for good.
func (r *requests) end(v event) {
	q := v.req
	if v.update != nil {
		r.merged(v.update, v.at)
		return
	}
	if v.report {
		q.reported = q.client.population.group.service.endpoints[q.endpoint].workers.utilization(v.at)
		return
	}
	if v.ok && v.served {
		if r.call(q, v.at) {
			return
		}
	}
	r.done(q, v.at, v.ok)
}

// done ends an attempt whose calls have ended.
func (r *requests) done(q *request, at float64, ok bool) {
	c := q.client
	s := c.population.group.service
	if q.site >= 0 {
		k := &c.counts[q.site]
		k.busy--
		e := &s.endpoints[q.endpoint]
		e.stay += (1000*(at-q.sent) - c.population.group.latency[q.site] - e.stay) * recentWeight
		if ok {
			k.succeeded++
			k.measured++
			k.metrics += s.reportedUtilization(q.site)
			if c.told != nil {
				c.told[q.endpoint] = told{q.reported, time.Duration(at * float64(time.Second))}
			}
			s.sites[q.site].served++
		} else {
			k.errors++
		}
		r.w.judge(c, q.endpoint, at, ok)
	}
	if !ok && c.population.source != nil && q.tries <= c.population.source.Retries {
		r.send(q, at)
		return
	}
	r.count(q, at, ok)
	if p := q.parent; p != nil {
		p.ok = p.ok && ok
		if p.children--; p.children == 0 {
			r.done(p, at, p.ok)
		}
	}
}

// call makes the calls of a request that was served, and reports whether there are
// any.
func (r *requests) call(q *request, at float64) bool {
	s := q.client.population.group.service
	var children []*request
	for i := range s.calls {
		callers := s.calls[i].callers[q.site]
		n := int(s.calls[i].perRequest + r.rng.Float64())
		for range n {
			children = append(children, &request{client: callers.clients[r.rng.IntN(len(callers.clients))], parent: q, began: at})
		}
	}
	q.children, q.ok = len(children), true
	for _, child := range children {
		r.send(child, at)
	}
	return len(children) > 0
}

// drop ends a request that the client drops as told.
func (r *requests) drop(q *request) {
	p := q.client.population
	r.records.hops++
	r.records.shed++
	if p.source != nil {
		r.records.roots++
	}
	if s := p.group.service; s.spec.Criticality != nil {
		r.records.classes[p.class].add(1, 1, 0)
	}
	if parent := q.parent; parent != nil { // the caller lives with it
		if parent.children--; parent.children == 0 {
			r.done(parent, q.sent, parent.ok)
		}
	}
}

// count counts a request that ended. One that failed counts with the timeout: a
// quick failure is no quick answer.
func (r *requests) count(q *request, at float64, ok bool) {
	p, t := q.client.population, &r.records
	ms := 1000 * (at - q.began)
	failed := 0.0
	if !ok {
		failed = 1
		ms = max(ms, 1000*r.w.timeout())
	}
	t.hops++
	t.failed += failed
	if p.group.service.spec.Criticality != nil {
		t.classes[p.class].add(1, 0, failed)
	}
	if q.site >= 0 {
		r.distance(q)
	}
	if q.parent == nil {
		t.roots++
		t.answered++
		t.latency += ms
		r.hist.add(ms, 1)
	}
}

func (r *requests) distance(q *request) {
	g := q.client.population.group
	b := block{w: r.w}
	b.distance(g, &g.service.sites[q.site], 1)
	r.records.add(&b.tick)
}

// take returns the totals of a tick, and begins the next one.
func (r *requests) take(t *totals, h *histogram) {
	r.records.answered = r.records.hops // see rootsAnswered: each counts with a latency but for those that were dropped
	if r.records.roots > 0 {
		r.records.answered *= 1 - r.records.shed/max(1, r.records.hops)
	}
	t.add(&r.records)
	h.merge(&r.hist)
	r.records, r.hist = totals{}, histogram{}
}
