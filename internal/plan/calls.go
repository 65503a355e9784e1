package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// link is a call that counts: what the caller's instances send in each of their
// localities follows from what they serve there, in place of what was measured.
type link struct {
	from, to   *draft
	perRequest float64
}

// maxGroup is how many localities services that calls connect may have together
// to be solved together: a chain is solved again from each of its services down.
const maxGroup = 400

// linkCalls finds the calls between drafts that count. A caller of which no
// demand is seen (an edge proxy that nobody reports on) tells nothing about its
// calls: then what was measured from it stands, and so it does for a service
// that not all may use everywhere.
func linkCalls(drafts []*draft) {
	byName := map[string]*draft{}
	for _, d := range drafts {
		if d != nil {
			byName[d.Spec.Name] = d
		}
	}
	for _, d := range drafts {
		if d == nil || d.sources.total() < minDemand {
			continue
		}
		for _, c := range d.Spec.Calls {
			to := byName[c.Service]
			twice := slices.ContainsFunc(d.out, func(l *link) bool { return l.to == to })
			if to != nil && to != d && !twice && !confines(to.Spec) && c.PerRequest > 0 {
				l := &link{from: d, to: to, perRequest: c.PerRequest}
				d.out, to.in = append(d.out, l), append(to.in, l)
			}
		}
	}
}

// groups are the drafts that links connect, callers first, and the others one
// by one, all in the order of their first service. Calls in a circle, which the
// configuration refuses, and groups that are too large fall apart: each of
// their services is solved alone, from what was measured.
func groups(drafts []*draft) [][]*draft {
	var out [][]*draft
	seen := map[*draft]bool{}
	for _, d := range drafts {
		if d == nil || seen[d] {
			continue
		}
		members := connected(d, seen)
		if sorted, ok := callersFirst(members); ok {
			out = append(out, sorted)
			continue
		}
		for _, m := range members {
			m.in, m.out, m.Alone = nil, nil, len(m.in)+len(m.out) > 0
			out = append(out, []*draft{m})
		}
	}
	return out
}

// connected are the drafts that links lead to from d, whichever way.
func connected(d *draft, seen map[*draft]bool) []*draft {
	members := []*draft{d}
	seen[d] = true
	for i := 0; i < len(members); i++ {
		for _, l := range slices.Concat(members[i].in, members[i].out) {
			for _, m := range []*draft{l.from, l.to} {
				if !seen[m] {
					seen[m] = true
					members = append(members, m)
				}
			}
		}
	}
	return members
}

func callersFirst(members []*draft) (sorted []*draft, ok bool) {
	waits := map[*draft]int{}
	localities := 0
	for _, m := range members {
		waits[m] = len(m.in)
		localities += len(m.routes.sites)
		if len(m.in) == 0 {
			sorted = append(sorted, m)
		}
	}
	for i := 0; i < len(sorted); i++ {
		for _, l := range sorted[i].out {
			if waits[l.to]--; waits[l.to] == 0 {
				sorted = append(sorted, l.to)
			}
		}
	}
	return sorted, len(sorted) == len(members) && (len(members) == 1 || localities <= maxGroup)
}

// dropCallers takes what the callers of a service were measured to send off its
// sources; what they will send comes with receive. A source of which nothing was
// reported recently is a caller's if a caller runs there.
func (d *draft) dropCallers() {
	if len(d.in) == 0 {
		return
	}
	for i := range d.sources {
		s := &d.sources[i]
		s.demand *= 1 - d.callerShare(s.source)
		if s.demand < minDemand {
			s.demand = 0
		}
	}
}

// callerShare is the part of a source's measured demand that comes from the
// instances of linked callers.
func (d *draft) callerShare(source isobar.Locality) float64 {
	callers, all := 0.0, 0.0
	if l := d.Load.Source(source); l != nil {
		for _, c := range l.Clients {
			all += c.Rate
			if slices.ContainsFunc(d.in, func(l *link) bool { return l.from.Spec.Name == c.Name }) {
				callers += c.Rate
			}
		}
	}
	if all > 0 {
		return callers / all
	}
	if slices.ContainsFunc(d.in, func(l *link) bool { return l.from.routes.sites.index(source) >= 0 }) {
		return 1
	}
	return 0
}

// receive adds what the instances of a caller will send, once it is assigned.
func (d *draft) receive(l *link) {
	caller := l.from.routes.sites
	for i, y := range l.from.sources.plannedLoad(l.from.Result, len(caller)) {
		at := caller[i].Group.Locality
		rate := l.perRequest * y
		k, known := d.sources.find(at)
		if !known {
			if rate < minDemand {
				continue
			}
			d.sources = slices.Insert(d.sources, k, sourceDemand{source: at, barred: barredFrom(&d.Service, d.routes.sites, at)})
		}
		d.sources[k].demand += rate
	}
}

// keepCalls has the demand of the last plan stand, which callers made a part of:
// a reapplication decides nothing.
func keepCalls(from sources, of *Service, at sites, prev *Service) sources {
	for i := range prev.Result.Sources {
		s := &prev.Result.Sources[i]
		k, known := from.find(s.Source)
		switch {
		case known:
			from[k].demand = s.Demand
		case s.Demand >= minDemand:
			from = slices.Insert(from, k, sourceDemand{source: s.Source, demand: s.Demand, barred: barredFrom(of, at, s.Source)})
		}
	}
	return from
}

// finishDemand updates the values that depend on demand, once the demands of all callers
// are known.
func (d *draft) finishDemand() {
	if len(d.in) == 0 {
		return
	}
	at := d.routes.sites
	at.applyDemand(d.sources)
	for i := range d.Limited {
		if s := &at[i]; !s.declared && !s.learned { // the capacity that a limit set is gone
			d.Limited[i] = s.limit(&d.Service, i)
		}
	}
	at.show(d.Sites)
}

// linked reports whether calls that count connect the service with others.
func (d *draft) linked() bool { return len(d.in)+len(d.out) > 0 }

// unproven is the fraction of the demand that is not proven, that of callers
// included, through so many calls at most as there are services in a chain.
func (d *draft) unproven(depth int) float64 {
	measured, of := 0.0, 0.0
	if d.Load != nil {
		for i := range d.Load.Sources {
			measured += d.Load.Sources[i].Unproven
			of += d.Load.Sources[i].Demand
		}
	}
	out := 0.0
	if measured > 0 {
		out = min(1, measured/of)
	}
	if depth < maxCallDepth {
		for _, l := range d.in {
			out = max(out, l.from.unproven(depth+1))
		}
	}
	return out
}

// maxCallDepth bounds how far calls are followed.
const maxCallDepth = 8

// CallSeen is one service calling another, as configured and as measured.
type CallSeen struct {
	Caller     string  `json:"caller"`
	PerRequest float64 `json:"per_request"` // as configured; 0 = not configured
	Measured   float64 `json:"measured"`    // calls per request that the caller serves; 0 = inconclusive
	Rate       float64 `json:"rate"`        // of the calls, requests/s
	Used       bool    `json:"used"`        // the demand of the calls is computed from what the caller serves
}

// callRate is the rate from which on calls are worth a ratio, requests/s.
const callRate = 1

// callsTo lists who calls a service: clients whose node.cluster is a service of
// the plan, and who is configured to, in the order of services.
func callsTo(p *Plan, s *Service) []CallSeen {
	rates := map[string]float64{}
	if s.Load != nil {
		for i := range s.Load.Sources {
			for _, c := range s.Load.Sources[i].Clients {
				rates[c.Name] += c.Rate
			}
		}
	}
	out := []CallSeen{}
	for _, from := range p.Services {
		c := CallSeen{Caller: from.Spec.Name, Rate: rates[from.Spec.Name]}
		for _, call := range from.Spec.Calls {
			if call.Service == s.Spec.Name {
				c.PerRequest = call.PerRequest
			}
		}
		if from == s || (c.PerRequest == 0 && c.Rate < callRate) {
			continue
		}
		if served := landed(from.Load); served >= callRate && c.Rate >= callRate {
			c.Measured = c.Rate / served
		}
		c.Used = c.PerRequest > 0 && slices.Contains(s.Callers, c.Caller)
		out = append(out, c)
	}
	return out
}

// landed is what was measured to land at a service, requests/s.
func landed(l *load.ServiceLoad) float64 {
	sum := 0.0
	if l != nil {
		for i := range l.Sites {
			sum += l.Sites[i].Issued
		}
	}
	return sum
}

// offRatio is how far calls per request may be from the configured ratio before
// explain warns, as a fraction of it.
const offRatio = 0.2

// callWarnings suggest calls that are only observed, and report ratios that do
// not hold.
func (e *explainer) callWarnings() []string {
	var out []string
	name := e.s.Spec.Name
	for _, c := range callsTo(e.plan, e.s) {
		switch {
		case c.PerRequest == 0 && c.Measured > 0:
			out = append(out, fmt.Sprintf("%s calls %s, %.2g times per request: to have both solved together, give %s calls: [{service: %s, per_request: %.2g}]",
				c.Caller, name, c.Measured, c.Caller, name, c.Measured))
		case c.PerRequest > 0 && !c.Used:
			out = append(out, fmt.Sprintf("the calls from %s are not solved together with it: the measured demand counts (%s)", c.Caller, e.whyAlone()))
		case c.Measured > 0 && math.Abs(c.Measured-c.PerRequest) > offRatio*c.PerRequest:
			out = append(out, fmt.Sprintf("%s makes %.2g calls per request, not %g: correct per_request", c.Caller, c.Measured, c.PerRequest))
		}
	}
	return out
}

func (e *explainer) whyAlone() string {
	if e.s.Spec.Isolation != isobar.IsolationNone || len(e.s.Spec.Residency) > 0 {
		return "isolation or residency do not let all callers use all localities"
	}
	if e.s.Alone {
		return fmt.Sprintf("services that calls connect have more than %d localities together, or call each other in a circle", maxGroup)
	}
	return "no demand of the caller is reported"
}
