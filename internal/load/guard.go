package load

import (
	"slices"
	"time"
)

// Guard against a client that reports implausibly much. In services of many nodes a node is
// doubted when it reports more than repute times its own mean and more than fair of the larger of the service's
// capacity and demand. The jump counts up to those limits. While it lasts, the limit falls to fair of the
// service, or to the node's own mean: real bursts are short, broken counters stay broken. Doubted
// values do not enter the mean, which grows by patience a report interval only, so that an honest node
// unlike all others is accepted in the end. The limit ends when the reports fall below it.
const (
	guardNodes   = 20
	guardWindows = 3 // with traffic: windows without it are no evidence
	repute       = 10.0
	fair         = 0.05
	alikeness    = 2.0
	patience     = 0.01
	afew         = 0.2 // of the nodes: when more are doubted at once, it is no lie
	meanWindows  = 60  // windows with traffic over which the mean is taken
)

// judge decides which part of the newest window counts. Windows without traffic say nothing about
// the node's rate when it has traffic. pace is the part of a report interval that passed since the
// window before arrived, at most 1.
func (f *flow) judge(pace float64) {
	rate, svc := f.window.rate(), f.source.service
	f.weight = 1
	f.windows++
	if rate <= f.limit {
		f.limit, f.stranger = 0, false
	}
	if rate < negligible {
		return
	}
	claim := fair * max(svc.capacity, svc.demand)
	switch {
	case f.limit > 0:
		f.mean *= 1 + pace*patience
		f.limit = min(rate, max(f.mean, claim, f.limit/2))
	case svc.nodes >= guardNodes && f.busy >= guardWindows && rate > max(repute*f.mean, claim):
		f.limit = max(repute*f.mean, claim)
	}
	f.busy++
	if f.limit > 0 {
		f.weight = f.limit / rate
	}
	f.fails += (f.window.failing() - f.fails) / f.experience()
	f.failing += (f.window.failing() - f.failing) * min(1, rate*f.window.length.Seconds()/fewRequests)
	f.learnProof(pace)
	if f.limit > 0 {
		return
	}
	step := (rate - f.mean) / f.experience()
	if f.busy > meanWindows && rate > claim { // otherwise a node that grows steadily would never be doubted
		step = min(step, pace*patience*f.mean)
	}
	f.mean += step
}

// experience is in how many windows the mean was made, the newest one included.
func (f *flow) experience() float64 { return float64(min(max(1, f.busy), meanWindows+1)) }

// peers summarises the nodes of a service at one time.
type peers struct {
	flows   []*flow
	median  float64 // of their rates, requests/s; a few bad reporters can't change it
	growth  float64 // median of rate over mean, of those that have a mean
	largest float64 // rate that counts of a node that is known, requests/s
	doubted int
}

// comparison compares the clients of a service with each other, at one time, and limits their
// counted load.
type comparison struct {
	service  *service
	now      time.Time
	interval time.Duration
}

// peers holds the nodes of a service against each other.
func (c *comparison) peers() (p peers) {
	var rates, growths []float64
	for _, src := range c.service.sources {
		for _, f := range src.flows {
			if trust, _ := f.trust(c.now, c.interval); trust <= 0 {
				continue
			}
			rate := f.window.rate()
			p.flows = append(p.flows, f)
			if f.stranger || f.ofCrowd() {
				continue
			}
			rates = append(rates, rate)
			if f.limit > 0 {
				p.doubted++
			}
			if f.known() {
				growths = append(growths, rate/f.mean)
				p.largest = max(p.largest, rate*f.weight)
			}
		}
	}
	p.median, p.growth = median(rates), median(growths)
	return p
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[(len(v)-1)/2]
}

// known reports whether the mean is worth something.
func (f *flow) known() bool { return f.met >= guardWindows && f.mean >= negligible }

// bound limits the counted load of the clients by comparison with the others.
func (c *comparison) bound(of *accounts) {
	of.findCrowds(c)
	c.boundNewcomers()
	c.vouch()
	c.boundGrowth()
}

// vouch compares the growth of the nodes of a service: when traffic returns after a quiet night
// all of them jump at once, so none is doubted. And it doubts nodes without a past that are
// unlike the others.
func (c *comparison) vouch() {
	if len(c.service.sources) == 0 || !c.service.questionable() {
		return
	}
	p := c.peers()
	if len(p.flows) < guardNodes {
		return
	}
	for _, f := range p.flows {
		f.introduce(&p)
	}
	usual := alikeness * p.median
	for _, f := range p.flows {
		if f.limit <= 0 || f.stranger {
			continue
		}
		allowed := max(usual, p.growth*f.mean)
		if float64(p.doubted) > afew*float64(len(p.flows)) {
			allowed = max(allowed, repute*f.mean)
		}
		f.raise(allowed)
	}
}

// introduce doubts a node without a past that claims to be served more than
// there is: twice the capacity of the service, or, where that is not known, of
// the demand that was known. A fleet may be one gateway and many that
// hardly send anything: less than that is no reason.
func (f *flow) introduce(p *peers) {
	svc, rate := f.source.service, f.window.rate()
	capacity := svc.capacity
	if capacity <= 0 {
		capacity = svc.demand
	}
	if f.limit > 0 || f.busy == 0 || f.met >= guardWindows || capacity <= 0 {
		return
	}
	allowed := max(alikeness*capacity, repute*p.median, alikeness*p.largest)
	if rate-f.window.errors-f.window.dropped <= allowed {
		f.met++
		return
	}
	f.limit, f.weight, f.mean = capacity, capacity/rate, min(f.mean, alikeness*p.median)
	p.doubted++
}

// raise lets the newest window count up to a rate, as if it had been judged so.
func (f *flow) raise(allowed float64) {
	rate := f.window.rate()
	if allowed <= f.limit {
		return
	}
	allowed = min(allowed, rate)
	f.mean += (allowed - f.mean) / f.experience()
	f.limit, f.weight = allowed, allowed/rate
	if allowed >= rate {
		f.limit, f.weight, f.stranger = 0, 1, false
	}
}
