package capacity

import "math"

// Rules of evidence.
const (
	temper      = 0.25 // weight of a window's evidence: the errors of the model repeat from window to window
	variability = 0.6  // of the queue, against that of random arrivals and service times
	queueFrom   = 0.95 // utilization from which the queue grows towards its bound
	refuseFrom  = 0.88 // utilization from which servers that shed let the queue grow no longer
	queueTo     = 1.1  // and where it gets there
	queueFull   = 0.7  // of the bound: the mean in overload
	defaultWait = 1.0  // timeout that is assumed, seconds
)

var logQueueFrom, logRefuseFrom = math.Log(queueFrom), math.Log(refuseFrom)

// cells holds the values that are equal for all cells of a row or a diagonal.
type cells struct {
	used     [rates]float64 // utilization
	log      [rates]float64 // its logarithm
	service  [times]float64 // seconds
	exponent [rates + times]float64
	queues   float64
	bound    float64        // requests in progress at which all time out
	refused  float64        // part of the requests that failed
	alone    bool           // no window before confirms the requests in progress, see hang
	limited  [rates]float64 // requests that wait where servers shed, against a queue of one server
}

func newCells(m *Model, w *Window, p *Prior) *cells {
	c := &cells{alone: m.hang.alone}
	timeout := w.Timeout
	if timeout <= 0 {
		timeout = max(defaultWait, 10*p.Service)
	}
	c.bound = w.Rate * timeout
	for k := range rates {
		c.used[k] = w.Rate / w.Units / cell(m.low+k)
	}
	c.logs()
	for s := range times {
		c.service[s] = cell(m.fast + s)
	}
	c.queues = w.queues()
	c.refuse(w.Failing)
	for i := range c.exponent {
		servers := w.Units / c.queues * cell(m.low+m.fast+i)
		c.exponent[i] = math.Sqrt(2 * (servers + 1))
	}
	return c
}

// logs sets the logarithms of the utilizations, which are a step apart.
func (c *cells) logs() {
	first := log(c.used[0])
	for k := range rates {
		c.log[k] = first - float64(k)*(step*math.Ln2)
	}
}

// refuse records the part that fails, and its effect on queues if servers refused it: the places
// of a queue at a utilization follow from the refused part, and the number of waiting requests
// follows from the places.
func (c *cells) refuse(failing float64) {
	c.refused = failing
	for k, used := range c.used {
		c.limited[k] = 1
		if failing < leastRefused || failing > collapsed {
			continue
		}
		few, many := 1.0, 128.0
		for range 6 { // how much fails falls as places grow
			places := math.Sqrt(few * many)
			if refused(places, math.Pow(used, places), used) > failing {
				few = places
			} else {
				many = places
			}
		}
		endless := min(used, refuseFrom)
		c.limited[k] = min(1, waitingIn(math.Sqrt(few*many), used)*(1-endless)/(endless*endless))
	}
}

// leastRefused is the part of failed requests from which on it is evidence about places.
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
	power := c.exponent[k+s] * min(c.log[k], logMost)
	if power < -20 {
		return 0
	}
	return variability * c.queues * exp(power) / (1 - min(c.used[k], most))
}

// at is the same at another rate, by a factor.
func (c *cells) at(factor float64) *cells {
	other := *c
	other.bound *= factor
	for k := range rates {
		other.used[k] *= factor
	}
	other.logs()
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
	var last float64
	var lastFull shape
	var again float32
	for k := range rates {
		used := c.used[k]
		error2 := modelError(used)
		full := newShape(error2, w.InProgress, c.alone)
		refusing := full
		if used > surelyFull {
			refusing = newShape(modelError(surelyFull), w.InProgress, c.alone)
		}
		for s := range times {
			queue, refuse := c.mean(w.Rate, k, s)
			if w.Varies > 0 {
				varies := min(w.Varies, mostVaries)
				lowest, lowestRefusing := less.mean(w.Rate*(1-varies), k, s)
				highest, highestRefusing := more.mean(w.Rate*(1+varies), k, s)
				queue, refuse = (lowest+highest)/2, (lowestRefusing+highestRefusing)/2
				off := (highest - lowest) / (highest + lowest)
				full = newShape(error2+off*off, w.InProgress, c.alone)
				full = full.absolute()
				refusing = full
			}
			v := temper * refusing.likelihood(part*refuse+w.Network)
			m.waiting[shedding][k][s] += v
			if queue != refuse {
				if queue != last || full != lastFull { // in overload the queue is its bound, in all cells
					last, lastFull, again = queue, full, temper*full.likelihood(part*queue+w.Network)
				}
				v = again
			}
			m.waiting[queueing][k][s] += v
		}
	}
}

// mostVaries bounds how much the rate is assumed to vary within a window.
const mostVaries = 0.9

// mean is the expected number of requests at the servers, where these queue and
// where they shed.
func (c *cells) mean(rate float64, k, s int) (queueing, shedding float64) {
	used, queue := c.used[k], c.waiting(k, s, queueFrom, logQueueFrom)
	refusing := queue
	if used > refuseFrom {
		refusing = c.waiting(k, s, refuseFrom, logRefuseFrom)
	}
	shedding = min(c.bound, rate*(1-c.refused)*c.service[s]+refusing*c.limited[k])
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
type shape struct{ n, r, fixed, least float64 }

// mostAlone bounds the evidence of a window against a mean if no window before confirms it, as
// the logarithm of a likelihood ratio.
const mostAlone = 8

func newShape(error2, n float64, alone bool) shape {
	s := shape{n: n, r: 1 / error2, least: math.Inf(-1)}
	best := s.of(n)
	s.fixed = -best
	if alone {
		s.least = best - mostAlone
	}
	return s
}

// likelihood is the logarithm of the probability of n, relative to that of the mean that fits
// best. The error of the model is the same in all windows, so a cell with a large error does not
// become less likely with each window.
func (s *shape) likelihood(mean float64) float32 { return float32(s.fixed + max(s.least, s.of(mean))) }

// absolute is the shape with likelihoods that are not relative to the mean that fits
// best: a cell in which the error is large is less likely. It is for windows in which
// the rate varies: their error differs from window to window.
func (s *shape) absolute() shape {
	a, _ := math.Lgamma(s.n + s.r)
	b, _ := math.Lgamma(s.r)
	return shape{n: s.n, r: s.r, fixed: a - b + s.r*math.Log(s.r), least: s.least}
}

func (s *shape) of(mean float64) float64 {
	mean = max(mean, 1e-3)
	all := log(s.r + mean)
	return s.n*(log(mean)-all) - s.r*all
}

// fail takes failures, successes and the reported utilization as evidence.
func (m *Model) fail(w *Window, c *cells) {
	n := w.Rate * w.Seconds
	late := newLateness(w.Failing, n)
	for k := range rates {
		used := c.used[k]
		known := utilization(w.Utilization, used) + completed(w.Goodput/w.Rate*used)
		queue := late.at(used)
		for e := range failures {
			queued, shed := known, known
			if w.Failing <= collapsed {
				f := &failing[shedding][e]
				p := f.fraction(used)
				wide := (f.fraction(used*(1+cellWidth/2)) - f.fraction(used*(1-cellWidth/2))) / 2
				sigma := tolerance(p, n)
				queued += queue[e]
				shed += gauss(w.Failing-p, math.Sqrt(sigma*sigma+wide*wide))
			}
			m.failed[queueing][k][e] += temper * float32(queued)
			m.failed[shedding][k][e] += temper * float32(shed)
		}
	}
}

// ways has a logarithm of a likelihood for each way to fail.
type ways = [failures]float64

// lateness is how likely the failures of a window are where servers queue. In overload they may
// work on nothing but requests that were given up, or lose next to nothing while queues grow. By
// chance some requests are too slow before.
type lateness struct {
	failed    float64 // part of the requests
	sigmas    ways
	none, all ways // where no request can be too late, and where all can be
}

// Utilizations from which on requests can be too late, and from which on all can be.
const (
	lateFrom = 0.8
	lateTo   = 1.3
)

func newLateness(failed, n float64) *lateness {
	l := &lateness{failed: failed}
	for e := range l.sigmas {
		l.sigmas[e] = tolerance(failing[queueing][e].constant, n)
	}
	l.none, l.all = l.compute(lateFrom), l.compute(lateTo)
	return l
}

// at returns the likelihoods at a utilization.
func (l *lateness) at(used float64) ways {
	switch {
	case used <= lateFrom:
		return l.none
	case used >= lateTo:
		return l.all
	}
	return l.compute(used)
}

func (l *lateness) compute(used float64) (out ways) {
	wasted := ramp(used, lateFrom, 1.05)
	probability := 0.2*ramp(used, lateFrom, 1) + 0.7*ramp(used, 1, lateTo)
	for e := range out {
		constant := failing[queueing][e].constant
		out[e] = excessive(l.failed-constant, (1-constant)*wasted, probability, l.sigmas[e])
	}
	return out
}

// collapsed is the part that fails from which on capacity does not follow from
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
	return log((1-probability)*normal(off, sigma)+spread*normal(off-inside, sigma)) - log(sigma)
}

// cellWidth is the relative width of a cell.
const cellWidth = 0.19

// completed weighs a capacity by the part of it that the successes would be: not much more than
// all.
func completed(part float64) float64 {
	const (
		slack  = 0.05
		spread = 0.08
		most   = 20
	)
	z := max(0, log(max(part, 1e-9))-slack) / spread
	return max(-most, -z*z/2)
}

// tolerance is the standard deviation of a part that fails: by chance, by the
// width of the cells, and because errors come in bursts.
func tolerance(p, n float64) float64 {
	wide := 0.002 + 0.3*p*(1-p)
	return math.Sqrt(p*(1-p)/n + wide*wide)
}

// normal is a normal density without its factor. Its tails limit the weight of
// one window.
func normal(off, sigma float64) float64 {
	const most = 12
	z := off / sigma
	return exp(max(-most, -z*z/2))
}

// gauss is the logarithm of a normal density.
func gauss(off, sigma float64) float64 {
	const most = 12
	z := off / sigma
	return max(-most, -z*z/2) - log(sigma)
}

// utilization compares reported utilization with that expected for a capacity. From about 1 on
// servers can't report more.
func utilization(reported, used float64) float64 {
	const (
		spread = 0.2
		most   = 8
	)
	if reported <= 0 {
		return 0
	}
	off := log(min(1, reported) / min(1, used))
	if reported >= 0.95 && used >= 0.95 {
		off = 0
	}
	z := off / spread
	return max(-most, -z*z/2)
}
