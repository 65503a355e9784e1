// Package capacity estimates what the endpoints of a locality can serve from
// what requests experience there: their rate, how many are in progress, and how
// many fail. It is pure: it knows numbers only, and no clock.
package capacity

import "math"

// The grid. Cells are equally wide in the logarithm, and alike for capacity and
// service time, so that a number of servers (their product) has cells, too.
const (
	rates    = 24 // cells of the capacity of one unit
	times    = 15 // cells of the service time: of localities up to six times slower than usual
	faster   = 4  // of these, below the usual one: slower is more usual than faster
	failures = 8  // ways in which requests fail
	modes    = 2
	step     = 0.25 // width of a cell in octaves: 19%
)

// failure is one way in which requests fail: a part of them whatever the load, and by
// refusals of servers in which so many requests may be at once.
type failure struct {
	constant float64
	places   float64 // 0 = nothing is refused
}

// failing are the ways to fail where servers queue and where they shed, and failingPrior
// their probabilities. How many requests may be in a server is not known, and differs
// between services.
var (
	failing = [modes][failures]failure{
		queueing: {{0.0005, 0}, {0.003, 0}, {0.01, 0}, {0.03, 0}, {0.09, 0}, {0.18, 0}, {0.33, 0}, {0.6, 0}},
		shedding: {{0.0005, 3}, {0.0005, 6}, {0.0005, 12}, {0.0005, 24}, {0.0005, 48}, {0.03, 12}, {0.12, 12}, {0.33, 12}},
	}
	failingPrior = [modes][failures]float64{
		queueing: {0.86, 0.03, 0.03, 0.03, 0.02, 0.01, 0.01, 0.01},
		shedding: {0.18, 0.19, 0.19, 0.19, 0.18, 0.03, 0.02, 0.02},
	}
)

// refused is the part of the requests that a server refuses at a utilization: that of
// a queue of one server with so many places.
func (f *failure) refused(used float64) float64 {
	if f.places <= 0 || used <= 0 {
		return 0
	}
	if math.Abs(used-1) < 1e-6 {
		return 1 / (f.places + 1)
	}
	x := math.Pow(used, f.places)
	return x * (1 - used) / (1 - x*used)
}

// part is the part of the requests that fails at a utilization.
func (f *failure) part(used float64) float64 { return 1 - (1-f.constant)*(1-f.refused(used)) }

// another is the part of one more request/s that fails, with what fails of the others
// because of it.
func (f *failure) another(used float64) float64 {
	const near = 1.02
	return min(1, max(0, (near*f.part(used*near)-f.part(used))/(near-1)))
}

// How servers behave that get more than they can serve.
const (
	queueing = iota // requests wait, and fail by timeouts
	shedding        // servers refuse what is too much
)

// sheddingPrior is the probability that servers shed where nothing is known of it, and
// surelySheds how sure others may make of it.
const (
	sheddingPrior = 0.5
	surelySheds   = 0.97
)

// Window is what was observed in one report interval. Rates are requests/s.
type Window struct {
	Rate float64 // of attempts
	// Sampled is the part of Rate of the clients whose requests are counted in
	// InProgress; Network is how many of these are expected on the network. 0 =
	// there is no sample.
	Sampled, InProgress, Network float64
	Goodput                      float64 // requests/s that succeeded
	Failing                      float64 // part of the requests that failed or were given up, 0 to 1
	Utilization                  float64 // as reported by the servers; 0 = not reported
	Seconds                      float64 // length of the window
	Units                        float64 // of what serves: the weight of the endpoints that take traffic
	Queues                       float64 // endpoints that take traffic, each with a queue of its own; 0 = as many as units
	// Varies is the standard deviation of the rate within windows, as a part of it: the
	// requests in progress are counted at one moment of it.
	Varies  float64
	Timeout float64 // of the requests, in seconds; 0 = not known
}

// Prior is what is believed without evidence.
type Prior struct {
	PerUnit float64 // capacity of one unit, requests/s
	Width   float64 // factor within which two thirds of the belief lie; above 1
	Assumed bool    // nobody declared PerUnit: plans don't go by it
	Service float64 // service time in seconds
	// Shedding is the probability that the servers refuse what is too much, 0 to 1; 0 =
	// nothing is known of it.
	Shedding float64
}

// Model is the joint belief about the capacity and the service time of one
// locality. What it holds is evidence alone, as logarithms of likelihood ratios;
// the prior is added when it is read, and may change at any time. The zero value
// knows nothing.
//
// Given the capacity, the requests in progress tell about the service time, and
// failures about the part that fails anyway, independently of each other: so two
// small tables for each capacity do for one large one.
type Model struct {
	began     bool
	sent      float64 // requests/s of a unit now
	carried   float64 // the same in the newest window with requests
	varies    bool    // the rate varied within the newest window
	served    float64 // the highest rate of a unit at which nearly all succeeded; it fades
	hanging   int     // windows in which requests may still fail because of a hang
	before    *Model  // what was known before requests failed at a rate that was served; nil = they do not
	since     int     // windows that were taken since
	failing   float64 // part of the requests that failed lately
	low, fast int     // cells at which the grid begins, in steps from 1 request/s, and 1 second

	all     [modes][rates]float32           // of the ways to behave and capacities
	waiting [modes][rates][times]float32    // of service times, given those
	failed  [modes][rates][failures]float32 // of parts that fail anyway, given those
}

// Rules of evidence.
var logQueueFrom, logRefuseFrom = math.Log(queueFrom), math.Log(refuseFrom)

const (
	lately      = 0.3  // weight of a window in the part that failed lately
	forget      = 0.03 // of the evidence with each window
	changed     = 0.01 // probability that what was known is no longer true, with each window
	temper      = 0.25 // weight of a window's evidence: the errors of the model repeat from window to window
	variability = 0.6  // of the queue, against that of random arrivals and service times
	queueFrom   = 0.95 // utilization from which the queue grows towards its bound
	refuseFrom  = 0.88 // utilization from which servers that shed let the queue grow no longer
	queueTo     = 1.1  // and where it gets there
	queueFull   = 0.7  // of the bound: the mean in overload
	defaultWait = 1.0  // timeout that is assumed, seconds
	leastWindow = 20.0 // requests in a window, below which it is skipped
	diedWithin  = 0.05 // part that fails of a window in which a locality dies
	hangs       = 0.98 // part that fails while a locality hangs
	hangsUpTo   = 1.1  // of the rate that was served before: above it the same is overload
	hungRate    = 5.0  // requests in a window, from which on it may show a hang
	begins      = 3    // windows in which a hang begins, at most: clients report at different times, and wait for timeouts
	ends        = 2    // windows in which it ends, at most
	sigmas      = 3    // standard deviations that are no longer chance
)

// Outcome is what a model makes of a window.
type Outcome int

// The outcomes.
const (
	Skipped Outcome = iota // it tells nothing: next to nothing was sent, or the locality was dead or hung
	Taken
	Hung // nothing succeeds at a rate that was served: what was taken of the windows in which that began is undone
)

// Observe takes one window as evidence, unless it tells nothing about what a locality can
// serve.
func (m *Model) Observe(w *Window, p *Prior) Outcome {
	switch {
	case !w.valid() || !p.valid():
		return Skipped
	case m.hung(w):
		m.undo()
		return Hung
	case w.Rate*w.Seconds < leastWindow || w.dead(p) || m.recovers(w):
		return Skipped
	}
	m.doubt(w)
	m.place(p, w.Rate/w.Units)
	c := newCells(m, w, p)
	if w.Sampled > 0 {
		m.wait(w, c)
	}
	m.fail(w, c)
	m.carried, m.varies = w.Rate/w.Units, w.Varies > 0
	m.served *= 1 - forget
	if w.Failing < diedWithin {
		m.served = max(m.served, m.carried)
	}
	m.sent = m.carried
	m.failing += (w.Failing - m.failing) * lately
	m.settle(p)
	return Taken
}

// hung reports whether no request succeeds at a rate that was served before: servers hang.
// Many are in progress then, as in an overload, but that is not how many they can serve.
func (m *Model) hung(w *Window) bool {
	return w.Failing >= hangs && w.Rate*w.Seconds >= hungRate && w.Rate/w.Units <= hangsUpTo*m.served
}

// doubt keeps what is known when requests begin to fail at a rate that was served: the
// next windows show whether servers are overloaded or begin to hang.
func (m *Model) doubt(w *Window) {
	if w.Failing < diedWithin || w.Rate/w.Units > hangsUpTo*m.served {
		m.before, m.since = nil, 0
		return
	}
	if m.since == 0 {
		known := *m
		m.before = &known
	}
	if m.since++; m.since > begins {
		m.before = nil
	}
}

// undo returns to what was known before the hang began.
func (m *Model) undo() {
	if m.before != nil {
		*m = *m.before
	}
	m.hanging = ends
}

// recovers reports whether requests fail in a window because the hang before it ends in it.
func (m *Model) recovers(w *Window) bool {
	if m.hanging == 0 {
		return false
	}
	m.hanging--
	if w.Failing < diedWithin {
		m.hanging = 0
	}
	return m.hanging > 0 || w.Failing >= diedWithin
}

// Idle tells that next to nothing was sent for the length of a window: what is known of
// failures and capacity is forgotten as with any other window, so that a locality that
// was left because requests failed there is tried again.
func (m *Model) Idle(p *Prior) {
	if !m.began || !p.valid() {
		return
	}
	m.sent = 0
	m.failing *= 1 - forget
	m.settle(p)
}

func (w *Window) valid() bool {
	for _, v := range [...]float64{w.Rate, w.Sampled, w.InProgress, w.Network, w.Goodput, w.Failing, w.Utilization, w.Seconds,
		w.Units, w.Queues, w.Varies, w.Timeout,
	} {
		if !(v >= 0 && v < 1e12) {
			return false
		}
	}
	return w.Seconds > 0 && w.Units > 0 && w.Failing <= 1
}

// dead reports whether requests fail although far fewer are in progress than those that
// succeed explain: nothing listens any more, or did in a part of the window only. That
// tells nothing about how many a locality can serve. Full servers have more in progress.
func (w *Window) dead(p *Prior) bool {
	held, explained := w.InProgress-w.Network, w.Sampled*p.Service
	if w.Failing > collapsed {
		return held <= explained
	}
	explained *= 1 - w.Failing
	return w.Failing > diedWithin && held < explained-sigmas*math.Sqrt(explained)
}

// queues is the number of queues that requests wait in.
func (w *Window) queues() float64 {
	if w.Queues > 0 {
		return w.Queues
	}
	return w.Units
}

func (p *Prior) valid() bool {
	return p.Shedding >= 0 && p.Shedding <= 1 && p.PerUnit > 1e-9 && p.PerUnit < 1e12 && p.Width > 1 && p.Width < 1e3 && p.Service > 1e-9 && p.Service < 1e6
}

// modes are the probabilities of the ways in which servers behave.
func (p *Prior) modes() [modes]float64 {
	shed := sheddingPrior
	if p.Shedding > 0 {
		shed = min(surelySheds, max(1-surelySheds, p.Shedding))
	}
	return [modes]float64{queueing: 1 - shed, shedding: shed}
}

// cellsOf is a value's place in steps.
func cellsOf(v float64) float64 { return math.Log2(v) / step }

// place moves the grid to where the prior and the present rate are. Evidence
// keeps its place; cells that are new have none.
func (m *Model) place(p *Prior, perUnit float64) {
	low := int(math.Round(cellsOf(p.PerUnit))) - rates*5/8
	if perUnit > 0 { // room for twice the present rate, and for less than half of it
		low = max(low, int(math.Ceil(cellsOf(2*perUnit)))-rates+1)
		low = min(low, max(int(math.Floor(cellsOf(perUnit/2.5))), low-4))
	}
	fast := int(math.Round(cellsOf(p.Service))) - faster
	switch {
	case !m.began:
		m.began, m.low, m.fast = true, low, fast
		return
	case abs(low-m.low) < 4 && abs(fast-m.fast) < 3:
		return
	}
	old := *m
	m.low, m.fast = low, fast
	for b := range modes {
		for k := range rates {
			from := max(0, min(rates-1, k+low-old.low)) // beyond the grid its edge
			m.all[b][k], m.failed[b][k] = old.all[b][from], old.failed[b][from]
			for s := range times {
				m.waiting[b][k][s] = old.waiting[b][from][max(0, min(times-1, s+fast-old.fast))]
			}
		}
	}
}

func abs(i int) int { return max(i, -i) }

// cells holds what is equal for all cells of a row or a diagonal.
type cells struct {
	used     [rates]float64 // utilization
	log      [rates]float64 // its logarithm
	service  [times]float64 // seconds
	exponent [rates + times]float64
	queues   float64
	bound    float64        // requests in progress at which all time out
	refused  float64        // part of the requests that failed
	limited  [rates]float64 // requests that wait where servers shed, against a queue of one server
}

func newCells(m *Model, w *Window, p *Prior) *cells {
	c := &cells{}
	timeout := w.Timeout
	if timeout <= 0 {
		timeout = max(defaultWait, 10*p.Service)
	}
	c.bound = w.Rate * timeout
	for k := range rates {
		c.used[k] = w.Rate / w.Units / math.Exp2(step*float64(m.low+k))
		c.log[k] = math.Log(c.used[k])
	}
	for s := range times {
		c.service[s] = math.Exp2(step * float64(m.fast+s))
	}
	c.queues = w.queues()
	c.refuse(w.Failing)
	for i := range c.exponent {
		servers := w.Units / c.queues * math.Exp2(step*float64(m.low+m.fast+i))
		c.exponent[i] = math.Sqrt(2 * (servers + 1))
	}
	return c
}

// refuse notes the part that fails, and what it makes of queues if servers refused it:
// the places that they have at a utilization follow from what they refuse, and how many
// requests wait follows from the places.
func (c *cells) refuse(failing float64) {
	c.refused = failing
	for k, used := range c.used {
		c.limited[k] = 1
		if failing < leastRefused || failing > collapsed {
			continue
		}
		few, many := 1.0, 128.0
		for range 6 { // how much fails falls as places grow
			f := failure{places: math.Sqrt(few * many)}
			if f.refused(used) > failing {
				few = f.places
			} else {
				many = f.places
			}
		}
		endless := min(used, refuseFrom)
		c.limited[k] = min(1, waitingIn(math.Sqrt(few*many), used)*(1-endless)/(endless*endless))
	}
}

// leastRefused is the part of the requests that fails from which on it tells about places.
const leastRefused = 0.002

// waitingIn is the mean number of requests that wait for one server with so many places.
func waitingIn(places, used float64) float64 {
	if math.Abs(used-1) < 1e-3 {
		return places/2 - places/(places+1)
	}
	x := math.Pow(used, places)
	return used/(1-used) - (places+1)*x*used/(1-x*used) - used*(1-x)/(1-x*used)
}

// waiting is the mean number of requests that wait, by Sakasegawa's approximation:
// clients choose an endpoint without regard to its queue, so each queue is one of
// its own.
func (c *cells) waiting(k, s int, most, logMost float64) float64 {
	used, log := min(c.used[k], most), min(c.log[k], logMost)
	if c.exponent[k+s]*log < -20 {
		return 0
	}
	return variability * c.queues * math.Exp(c.exponent[k+s]*log) / (1 - used)
}

// at is the same at another rate, by a factor.
func (c *cells) at(factor float64) *cells {
	other := *c
	other.bound *= factor
	for k := range rates {
		other.used[k] *= factor
		other.log[k] = math.Log(other.used[k])
	}
	other.refuse(c.refused)
	return &other
}

// wait takes the requests in progress as evidence.
func (m *Model) wait(w *Window, c *cells) {
	part := w.Sampled / w.Rate
	less, more := c, c
	if w.Varies > 0 {
		varies := min(w.Varies, mostVaries)
		less, more = c.at(1-varies), c.at(1+varies)
	}
	for k := range rates {
		used := c.used[k]
		error2 := modelError(used)
		full := newShape(error2, w.InProgress)
		refusing := full
		if used > surelyFull {
			refusing = newShape(modelError(surelyFull), w.InProgress)
		}
		for s := range times {
			queue, refuse := c.mean(w.Rate, k, s)
			if w.Varies > 0 {
				varies := min(w.Varies, mostVaries)
				queue, refuse = swung(w, less, more, varies, k, s)
				lowest, _ := less.mean(w.Rate*(1-varies), k, s)
				highest, _ := more.mean(w.Rate*(1+varies), k, s)
				off := (highest - lowest) / (highest + lowest)
				full = newShape(error2+off*off, w.InProgress)
				full = full.absolute()
				refusing = full
			}
			v := temper * refusing.likelihood(part*refuse+w.Network)
			m.waiting[shedding][k][s] += v
			if queue != refuse {
				v = temper * full.likelihood(part*queue+w.Network)
			}
			m.waiting[queueing][k][s] += v
		}
	}
}

// mostVaries bounds by how much the rate is believed to vary within a window.
const mostVaries = 0.9

// swung is the mean of two rates.
func swung(w *Window, less, more *cells, varies float64, k, s int) (queueing, shedding float64) {
	a, b := less.mean(w.Rate*(1-varies), k, s)
	c, d := more.mean(w.Rate*(1+varies), k, s)
	return (a + c) / 2, (b + d) / 2
}

// mean is the expected number of requests at the servers, where these queue and
// where they shed.
func (c *cells) mean(rate float64, k, s int) (queueing, shedding float64) {
	used, queue := c.used[k], c.waiting(k, s, queueFrom, logQueueFrom)
	shedding = min(c.bound, rate*(1-c.refused)*c.service[s]+c.waiting(k, s, refuseFrom, logRefuseFrom)*c.limited[k])
	if used <= queueFrom {
		return min(c.bound, rate*c.service[s]+queue), shedding
	}
	// Where nothing is refused, the queue grows towards its bound.
	over := min(1, max(0, (used-queueFrom)/(queueTo-queueFrom)))
	queueing = rate*c.service[s] + queue
	return min(c.bound, queueing+over*max(0, queueFull*c.bound-queueing)), shedding
}

// surelyFull is the utilization from which on servers that shed differ from those
// that queue.
const surelyFull = 0.95

// modelError is the square of the relative error of the model, which grows near
// saturation.
func modelError(used float64) float64 {
	e := 0.12 + 0.75*ramp(used, 0.6, 1)
	return e * e
}

// shape is that of a negative binomial distribution of n: the inverse square of
// the relative error of the model.
type shape struct{ n, r, fixed float64 }

func newShape(error2, n float64) shape {
	r := 1 / error2
	s := shape{n: n, r: r}
	s.fixed = -s.of(n)
	return s
}

// likelihood is the logarithm of the probability of n, as a part of what it is for
// the mean that fits best. The error of the model is the same in all windows, so
// that a cell in which it is large is no less likely for it, window by window.
func (s *shape) likelihood(mean float64) float32 { return float32(s.fixed + s.of(mean)) }

// absolute is the shape with likelihoods that are not relative to the mean that fits
// best: a cell in which the error is large is less likely. It is for windows in which
// the rate varies: their error differs from window to window.
func (s *shape) absolute() shape {
	a, _ := math.Lgamma(s.n + s.r)
	b, _ := math.Lgamma(s.r)
	return shape{n: s.n, r: s.r, fixed: a - b + s.r*math.Log(s.r)}
}

func (s *shape) of(mean float64) float64 {
	mean = max(mean, 1e-3)
	all := math.Log(s.r + mean)
	return s.n*(math.Log(mean)-all) - s.r*all
}

// fail takes failures, successes and the reported utilization as evidence.
func (m *Model) fail(w *Window, c *cells) {
	n := w.Rate * w.Seconds
	for k := range rates {
		used := c.used[k]
		known := utilization(w.Utilization, used) + completed(w.Goodput/w.Rate*used)
		// In overload those that queue may work on nothing but requests that were given up,
		// or lose next to nothing while queues grow. By chance some are too slow before.
		wasted, probability := ramp(used, 0.8, 1.05), 0.2*ramp(used, 0.8, 1)+0.7*ramp(used, 1, 1.3)
		for e := range failures {
			queue, shed := known, known
			if w.Failing <= collapsed {
				f := &failing[queueing][e]
				queue += excessive(w.Failing-f.constant, (1-f.constant)*wasted, probability, tolerance(f.constant, n))
				f = &failing[shedding][e]
				p := f.part(used)
				wide := (f.part(used*(1+cellWidth/2)) - f.part(used*(1-cellWidth/2))) / 2
				shed += gauss(w.Failing-p, math.Hypot(tolerance(p, n), wide))
			}
			m.failed[queueing][k][e] += temper * float32(queue)
			m.failed[shedding][k][e] += temper * float32(shed)
		}
	}
}

// collapsed is the part that fails from which on there is no telling capacity by
// it: all time goes into requests that were given up, or the locality is dead.
const collapsed = 0.7

// ramp grows from 0 to 1 between two values.
func ramp(v, from, to float64) float64 { return min(1, max(0, (v-from)/(to-from))) }

// excessive is the logarithm of the density of the part that fails beyond a
// constant part: none, or, with a probability, anything up to most, of which
// little is as likely as much.
func excessive(off, most, probability, sigma float64) float64 {
	if most <= 0 {
		return gauss(off, sigma)
	}
	const peak = 2.5 // of the normal distribution, whose factor gauss leaves out
	inside := min(most, max(0, off))
	spread := probability * peak * sigma / ((inside + peak*sigma) * math.Log1p(most/(peak*sigma)))
	return math.Log((1-probability)*bell(off, sigma)+spread*bell(off-inside, sigma)) - math.Log(sigma)
}

// cellWidth is the relative width of a cell.
const cellWidth = 0.19

// completed weighs a capacity by what it would mean for the part of it that
// succeeds: not much more than all.
func completed(part float64) float64 {
	const (
		slack  = 0.05
		spread = 0.08
		most   = 20
	)
	z := max(0, math.Log(max(part, 1e-9))-slack) / spread
	return max(-most, -z*z/2)
}

// tolerance is the standard deviation of a part that fails: by chance, by the
// width of the cells, and because errors come in bursts.
func tolerance(p, n float64) float64 {
	wide := 0.002 + 0.3*p*(1-p)
	return math.Sqrt(p*(1-p)/n + wide*wide)
}

// bell is a normal density but for its factor. Its tails end at what one window
// may say at most.
func bell(off, sigma float64) float64 {
	const most = 12
	z := off / sigma
	return math.Exp(max(-most, -z*z/2))
}

// gauss is the logarithm of a normal density.
func gauss(off, sigma float64) float64 {
	const most = 12
	z := off / sigma
	return max(-most, -z*z/2) - math.Log(sigma)
}

// utilization compares what servers report with what a capacity makes expect.
// From about 1 on they can't report more.
func utilization(reported, used float64) float64 {
	const (
		spread = 0.2
		most   = 8
	)
	if reported <= 0 {
		return 0
	}
	off := math.Log(min(1, reported) / min(1, used))
	if reported >= 0.95 && used >= 0.95 {
		off = 0
	}
	z := off / spread
	return max(-most, -z*z/2)
}
