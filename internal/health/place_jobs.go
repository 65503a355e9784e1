package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

// addJobs lists the endpoints to probe, sorted by key.
func (p *placer) addJobs(in *PlacementInput) {
	if in.Topology == nil {
		return
	}
	budget := in.Limits.EndpointRate
	if budget <= 0 {
		budget = DefaultEndpointRate
	}
	classes, barred := map[isobar.Locality]int{}, p.bars(in.Bars)
	for i := range in.Topology.Services {
		spec := &in.Topology.Services[i]
		needs, rate := demands(spec)
		if needs == 0 {
			continue
		}
		first := len(p.jobs)
		for j := range spec.Localities {
			sl := &spec.Localities[j]
			class, known := classes[sl.Locality]
			if !known {
				class = len(p.far)
				classes[sl.Locality] = class
				p.far = append(p.far, p.distances(in.Topology.Network, sl.Locality))
			}
			for k := range sl.Endpoints {
				if e := &sl.Endpoints[k]; Probed(spec, e) {
					j := newJob(spec, e, needs, rate, class, budget)
					j.barred = barred[spec.Name]
					p.jobs = append(p.jobs, j)
				}
			}
		}
		own := p.jobs[first:]
		sortJobs(own)
		own = slices.CompactFunc(own, func(a, b job) bool { return a.key == b.key })
		p.jobs = p.jobs[:first+len(own)]
	}
	sortJobs(p.jobs)
}

// sortJobs sorts by key; most often that is done already.
func sortJobs(list []job) {
	byKey := func(a, b job) int { return a.key.compare(b.key) }
	if !slices.IsSortedFunc(list, byKey) {
		slices.SortStableFunc(list, byKey)
	}
}

// demands sums up the abilities that the checks of a service need.
func demands(spec *isobar.Service) (needs Protocols, rate float64) {
	for i := range spec.HealthChecks {
		c := &spec.HealthChecks[i]
		every := c.Interval
		if every <= 0 {
			every = isobar.DefaultCheckInterval
		}
		rate += 1 / every.Seconds()
	}
	return Needs(spec), rate
}

func newJob(spec *isobar.Service, e *isobar.Endpoint, needs Protocols, rate float64, class int, budget float64) job {
	count, domains := wanted(spec)
	enough := min(count, max(twoVotes, domains))
	return job{
		key: Key{Service: spec.Name, Address: e.Address}, needs: needs | NeedsOf(e), rate: rate, class: class, slots: len(spec.HealthChecks),
		asked: count, enough: enough, want: min(count, max(enough, int(budget/rate+1e-9))), domains: domains,
	}
}

// wanted returns how many checkers a service asks for, and in how many domains,
// with the defaults filled in.
func wanted(spec *isobar.Service) (count, domains int) {
	count, domains = spec.Checkers.Count, spec.Checkers.Domains
	if count <= 0 {
		count = isobar.DefaultCheckerCount
	}
	if domains <= 0 {
		domains = isobar.DefaultCheckerDomains
	}
	return count, domains
}

func (p *placer) distances(n *isobar.Network, to isobar.Locality) []float64 {
	out := make([]float64, len(p.sites))
	for i := range p.sites {
		out[i], _ = n.Latency(p.sites[i].locality, to)
	}
	return out
}

// keep takes over the earlier designations that still fit, and reports whether a checker was
// lost.
func (p *placer) keep(previous Placement) (lost bool) {
	jobs := make(map[Key]int, len(p.jobs))
	for i := range p.jobs {
		jobs[p.jobs[i].key] = i
	}
	for _, d := range previous.Designations {
		c, connected := slices.BinarySearchFunc(p.checkers, d.Checker, func(c Checker, id string) int { return strings.Compare(c.ID, id) })
		if !connected {
			lost = true
			continue
		}
		for _, k := range d.Endpoints {
			if i, known := jobs[k]; known && p.fit(c, &p.jobs[i]) && !slices.Contains(p.jobs[i].chosen, c) {
				p.add(i, c)
			}
		}
	}
	for i := range p.jobs {
		for j := &p.jobs[i]; len(j.chosen) > j.want; {
			p.remove(i, p.surplus(j))
		}
	}
	return lost
}

func (p *placer) fit(checker int, j *job) bool {
	return p.checkers[checker].Protocols.Has(j.needs) && !slices.Contains(j.barred, checker)
}

// bars returns the checkers that must not probe a service, by service.
func (p *placer) bars(list []Bar) map[string][]int {
	out := map[string][]int{}
	for _, b := range list {
		if c, ok := slices.BinarySearchFunc(p.checkers, b.Checker, func(c Checker, id string) int { return strings.Compare(c.ID, id) }); ok {
			out[b.Service] = append(out[b.Service], c)
		}
	}
	return out
}

// shortfall describes the missing checkers of a job.
func (p *placer) shortfall(j *job) (Shortfall, bool) {
	domains := p.domains(j)
	if len(j.chosen) >= j.asked && domains >= j.domains {
		return Shortfall{}, false
	}
	s := Shortfall{Key: j.key, Checkers: len(j.chosen), Domains: domains, Want: j.asked, Spread: j.domains}
	able := 0
	for c := range p.checkers {
		if p.fit(c, j) {
			able++
		}
	}
	switch {
	case len(p.checkers) == 0:
		s.Why = "no checker is connected"
	case len(j.chosen) < j.want && len(j.barred) > 0:
		s.Why = plural.Count(len(j.barred), "checker is", "checkers are") +
			" not used: other checkers disconnected after Isobar assigned this service to them, so Isobar tries one checker at a time"
	case able == 0:
		s.Why = fmt.Sprintf("no connected checker supports %s", j.needs.describe())
	case len(j.chosen) < j.want && j.full > 0:
		s.Why = "checkers are at their limit of " + plural.Count(j.full, "endpoint", "endpoints") + ": add checkers, or raise their limit"
	case len(j.chosen) < j.want && j.overfull:
		s.Why = fmt.Sprintf("checkers are at their limit of %g probes/s", p.hard)
	case len(j.chosen) < j.want:
		s.Why = fmt.Sprintf("too few connected checkers support %s: %d", j.needs.describe(), able)
	case j.want < j.asked:
		s.Why = fmt.Sprintf("more checkers would probe it too often: each makes %g probes/s", j.rate)
	case j.asked < j.domains:
		s.Why = fmt.Sprintf("%s can't be in %d zones", plural.Count(j.asked, "checker", "checkers"), j.domains)
	default:
		s.Why = fmt.Sprintf("checkers for it are in %s only; `checkers: {domains: %d}` accepts that", plural.Count(domains, "zone", "zones"), max(1, domains))
	}
	return s, true
}
