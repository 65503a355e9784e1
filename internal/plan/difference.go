package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// Difference is the result of a Preview: the services that would change.
type Difference struct {
	Version  string              `json:"version"`  // of the plan that it is compared with
	Ticks    int                 `json:"ticks"`    // number of ticks until it converges
	Settled  bool                `json:"settled"`  // false: it had not converged after this number of ticks
	Services []ServiceDifference `json:"services"` // that differ, sorted
	Same     int                 `json:"same"`     // services that don't

	// Figures of the listed services: Latency is the mean over the served requests, ms (network,
	// service and queues by the solver's objective), Shed is the rate of dropped requests,
	// requests/s, and Moved is the part of the requests that goes elsewhere than before.
	Latency Three   `json:"latency_ms"`
	Shed    Three   `json:"shed"`
	Moved   float64 `json:"moved"`

	// Risks are reasons against the change, the worst first; empty = the change makes nothing worse
	// that a plan can measure.
	Risks []Risk `json:"risks"`

	// For a single drain, and for a rollback: Refusals are the reasons for which the server refuses
	// it without force, the worst first, and Unchecked says why they are not known.
	Refusals  []string `json:"refusals,omitempty"`
	Unchecked string   `json:"unchecked,omitempty"`
}

// ServiceDifference is the effect of a change of topology on one service.
type ServiceDifference struct {
	Service    string               `json:"service"`
	Change     string               `json:"change"`              // new, removed or changed
	Hold       string               `json:"hold,omitempty"`      // why weights would not move
	Policy     isobar.Policy        `json:"policy"`              // after the change
	PolicyMS   float64              `json:"policy_ms,omitempty"` // additional mean latency of a policy other than latency above the optimum, after convergence
	Drop       Three                `json:"drop"`                // fraction of the requests
	Latency    Three                `json:"latency_ms"`          // mean; 0 if nothing was solved
	Moved      float64              `json:"moved"`               // part of the requests that ends elsewhere
	Dead       bool                 `json:"dead,omitempty"`      // after convergence, no endpoint is healthy: clients use all of them
	Localities []LocalityDifference `json:"localities"`          // sorted
	Sources    []SourceDifference   `json:"sources"`             // that differ, sorted
}

// Three is a number before the change, after the first tick, and after convergence.
type Three struct {
	Before  float64 `json:"before"`
	First   float64 `json:"first"`
	Settled float64 `json:"settled"`
}

// LocalityDifference is a locality's load divided by its capacity; 0 without capacity.
type LocalityDifference struct {
	Locality    isobar.Locality `json:"locality"`
	Utilization Three           `json:"utilization"`
	Ceiling     float64         `json:"ceiling"` // highest planned utilization
	// Declared is false if capacity is derived from demand: utilization then means little, and does
	// not show the effect of more demand.
	Declared      bool   `json:"declared"`
	CapacityBasis string `json:"capacity_basis"` // declared, estimated or assumed
}

// SourceDifference shows the destinations of a source's traffic.
type SourceDifference struct {
	Source isobar.Locality   `json:"source"`
	Demand float64           `json:"demand"` // requests/s at present
	Shares []ShareDifference `json:"shares"` // shares that are not always 0, sorted
}

// ShareDifference is a locality's share of a source's traffic.
type ShareDifference struct {
	Locality isobar.Locality `json:"locality"`
	Share    Three           `json:"share"`
}

// The kinds of change.
const (
	ChangeNew     = "new"
	ChangeRemoved = "removed"
	ChangeChanged = "changed"
)

// Compare returns how a plan differs from the one before it. All changes take effect at
// once.
func Compare(before, after *Plan) Difference {
	p := Preview{Before: before, First: after, Settled: after, Still: true}
	return p.Difference()
}

// Difference tells what the preview found.
func (p *Preview) Difference() Difference {
	out := Difference{Version: p.Before.VersionString(), Ticks: p.last, Settled: p.Still, Services: []ServiceDifference{}}
	var risks []weighedRisk
	for _, name := range namesOf(p.Before, p.Settled) {
		if d, differs := p.service(name); differs {
			out.Services = append(out.Services, d)
			risks = append(risks, d.risks()...)
		} else {
			out.Same++
		}
	}
	out.Risks = sortedRisks(risks)
	out.Same += p.elsewhere
	p.totals(&out)
	return out
}

// totals adds up the services that are listed.
func (p *Preview) totals(out *Difference) {
	into := [3]struct{ latency, shed *float64 }{
		{&out.Latency.Before, &out.Shed.Before}, {&out.Latency.First, &out.Shed.First}, {&out.Latency.Settled, &out.Shed.Settled},
	}
	var moved, all float64
	for i, plan := range []*Plan{p.Before, p.First, p.Settled} {
		var cost, served float64
		for k := range out.Services {
			s, ok := plan.Service(out.Services[k].Service)
			if !ok || s.Result == nil {
				continue
			}
			c, n := s.cost()
			cost, served = cost+c, served+n
			demand := s.demand()
			*into[i].shed += s.Result.Drop * demand
			if plan == p.Settled {
				moved, all = moved+out.Services[k].Moved*demand, all+demand
			}
		}
		if served > 0 {
			*into[i].latency = cost / served
		}
	}
	if all > 0 {
		out.Moved = moved / all
	}
}

func (p *Preview) service(name string) (d ServiceDifference, differs bool) {
	var at [3]*Service
	for i, plan := range []*Plan{p.Before, p.First, p.Settled} {
		at[i], _ = plan.Service(name)
	}
	d = ServiceDifference{Service: name, Localities: []LocalityDifference{}, Sources: []SourceDifference{}}
	switch {
	case at[0] == nil:
		d.Change, differs = ChangeNew, true
	case at[2] == nil:
		d.Change, differs = ChangeRemoved, true
	default:
		d.Change = ChangeChanged
	}
	if at[2] != nil {
		d.Hold, d.Dead, d.Policy, d.PolicyMS = at[2].Hold, at[2].dead(), at[2].Spec.Policy, at[2].PolicyMS
		differs = differs || (d.Hold != "" && p.changed[name]) // nothing moves, but for another reason
	}
	d.Latency = three(at, (*Service).latency)
	d.Drop = three(at, func(s *Service) float64 { return s.Result.Drop })
	differs = differs || d.Drop.differ(0)
	locate := func(s *Service) []isobar.Locality { return s.localities() }
	for _, l := range union(at, locate) {
		u := three(at, func(s *Service) float64 { return s.utilization(l) })
		x := LocalityDifference{Locality: l, Utilization: u}
		x.limit(at)
		d.Localities = append(d.Localities, x)
		differs = differs || u.differ(0.01)
	}
	return d, d.addSources(at) || differs
}

// addSources adds where the traffic of each source goes, and reports whether any
// of it moves.
func (d *ServiceDifference) addSources(at [3]*Service) (differs bool) {
	sources := func(s *Service) (out []isobar.Locality) {
		for i := range s.Result.Sources {
			out = append(out, s.Result.Sources[i].Source)
		}
		return out
	}
	var rate, all float64
	for _, source := range union(at, sources) {
		x := SourceDifference{Source: source, Shares: []ShareDifference{}}
		moved := false
		for _, s := range at {
			if s != nil && s.Result.Source(source) != nil {
				x.Demand = s.Result.Source(source).Demand
			}
		}
		for i := range d.Localities {
			l := d.Localities[i].Locality
			share := three(at, func(s *Service) float64 { return s.share(source, l) })
			if share != (Three{}) {
				x.Shares = append(x.Shares, ShareDifference{l, share})
			}
			moved = moved || share.differ(0)
			rate += x.Demand * math.Abs(share.Settled-share.Before) / 2
		}
		all += x.Demand
		if moved {
			d.Sources, differs = append(d.Sources, x), true
		}
	}
	if all > 0 {
		d.Moved = rate / all
	}
	return differs
}

// limit sets the ceiling, and what the capacity rests on, of the last plan that has the
// locality.
func (d *LocalityDifference) limit(at [3]*Service) {
	for _, s := range at {
		if s == nil {
			continue
		}
		for i := range s.Sites {
			if s.Sites[i].Group.Locality == d.Locality {
				_, d.Declared = endpointRates(&s.Spec.Localities[i])
				d.Ceiling, d.CapacityBasis = s.Sites[i].Ceiling, s.Site(i).CapacityBasis()
			}
		}
	}
}

func three(at [3]*Service, of func(*Service) float64) Three {
	var v [3]float64
	for i, s := range at {
		if s != nil && s.Result != nil {
			v[i] = of(s)
		}
	}
	return Three{v[0], v[1], v[2]}
}

func (t Three) differ(by float64) bool {
	return math.Abs(t.First-t.Before) > by || math.Abs(t.Settled-t.Before) > by
}

// union lists the localities that of gives for any of the services, sorted.
func union(at [3]*Service, of func(*Service) []isobar.Locality) []isobar.Locality {
	var out []isobar.Locality
	for _, s := range at {
		if s != nil {
			out = append(out, of(s)...)
		}
	}
	return sortedLocalities(out)
}

// breachSlack is by how much a ceiling may be exceeded, as a factor, before it
// counts: shares are rounded.
const breachSlack = 1.01

// concern is something that speaks against a change, with how much it does.
type concern struct {
	kind int     // the worst first: concernDead and so on
	size float64 // of its kind: the fraction of requests, or the utilization over the ceiling
}

const (
	concernDead = iota
	concernRemoved
	concernDrop
	concernFull  // in the end
	concernEarly // after the first tick only
)

// worst compares concerns for a list that begins with the worst. What the texts show as equal
// is equal, so that the rest of the order, by names, decides.
func (a concern) worst(b concern) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(shown(b.size), shown(a.size)))
}

// shown rounds a fraction to what texts show of it: a tenth of a percent.
func shown(x float64) float64 { return math.Round(1000 * x) }

// breach is a concern in words.
type breach struct {
	concern

	text string
}

func breachTexts(all []breach) []string {
	slices.SortStableFunc(all, func(a, b breach) int { return a.worst(b.concern) })
	var out []string
	for i := range all {
		out = append(out, all[i].text)
	}
	return out
}

func (d *ServiceDifference) breaches() (out []breach) {
	was := false
	for i := range d.Localities {
		l := &d.Localities[i]
		was = was || l.Utilization.Before > 0
		if u := l.Utilization; l.Declared && u.Settled > breachSlack*l.Ceiling && u.Settled > breachSlack*u.Before {
			out = append(out, breach{
				concern{concernFull, over(u.Settled, l.Ceiling)},
				fmt.Sprintf("%s at %.1f%% of its capacity, above its ceiling of %.1f%%", l.Locality, 100*u.Settled, 100*l.Ceiling),
			})
		}
	}
	if d.Drop.Settled > d.Drop.Before+0.001 {
		out = append(out, breach{concern{concernDrop, d.Drop.Settled}, fmt.Sprintf("clients drop %.1f%% of the requests", 100*d.Drop.Settled)})
	}
	if d.Dead && was {
		out = append(out, breach{concern{kind: concernDead}, "no endpoint is left: clients try all of them"})
	}
	return out
}

// over is a utilization over its ceiling.
func over(utilization, ceiling float64) float64 {
	if ceiling <= 0 {
		return math.MaxFloat32
	}
	return utilization / ceiling
}

// Breaches tells what in the end is too much of a service, and worse than it
// was, the worst first: no endpoint left, drops, localities above their ceilings. Localities
// without declared capacity can't tell.
func (d *ServiceDifference) Breaches() []string { return breachTexts(d.breaches()) }

// Breaches tells the same of all services, with their names, the worst of all first.
func (d *Difference) Breaches() []string {
	var out []breach
	for i := range d.Services {
		for _, b := range d.Services[i].breaches() {
			b.text = d.Services[i].Service + ": " + b.text
			out = append(out, b)
		}
	}
	return breachTexts(out)
}

// NoReserve begins the first of the breaches where all of them are of the loss of one more zone.
const NoReserve = "nothing breaks at once, but no reserve is left: "

// Fits reports whether no service that differs drops requests, is above a ceiling or has no
// endpoint left, neither at first nor in the end.
func (d *Difference) Fits() bool {
	return !slices.ContainsFunc(d.Services, func(s ServiceDifference) bool {
		return s.Dead || max(s.Drop.First, s.Drop.Settled) > riskSlack || slices.ContainsFunc(s.Localities, func(l LocalityDifference) bool {
			return l.Declared && max(l.Utilization.First, l.Utilization.Settled) > l.Ceiling+riskSlack
		})
	})
}

// Risk is a reason against a change.
type Risk struct {
	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality,omitzero"`
	Text     string          `json:"text"` // a sentence that names both
}

// weighedRisk is a risk with its place among others.
type weighedRisk struct {
	Risk
	concern
}

// sortedRisks returns the worst first.
func sortedRisks(all []weighedRisk) []Risk {
	slices.SortStableFunc(all, func(a, b weighedRisk) int { return a.worst(b.concern) })
	out := make([]Risk, 0, len(all))
	for i := range all {
		out = append(out, all[i].Risk)
	}
	return out
}

// riskSlack is by how much utilization may be above a ceiling, or above what it was,
// without a word: it is rounding.
const riskSlack = 0.005

// risks lists what a change makes worse of a service: load above a ceiling after the
// first tick or in the end, more drops, and no endpoint left.
func (d *ServiceDifference) risks() (out []weighedRisk) {
	note := func(kind int, size float64, l isobar.Locality, format string, args ...any) {
		out = append(out, weighedRisk{Risk{d.Service, l, d.Service + ": " + fmt.Sprintf(format, args...)}, concern{kind, size}})
	}
	if d.Dead {
		note(concernDead, 1, isobar.Locality{}, "no healthy endpoint is left")
	}
	if d.Change == ChangeRemoved && d.Latency.Before > 0 {
		note(concernRemoved, 1, isobar.Locality{}, "it is removed while clients send to it")
	}
	if most := max(d.Drop.First, d.Drop.Settled); most > d.Drop.Before+riskSlack {
		kind := concernDrop
		if d.Drop.Settled <= d.Drop.Before+riskSlack {
			kind = concernEarly
		}
		note(kind, most, isobar.Locality{}, "clients drop up to %.1f%% of their requests, %.1f%% now", 100*most, 100*d.Drop.Before)
	}
	for i := range d.Localities {
		l := &d.Localities[i]
		if !l.Declared {
			continue
		}
		worse := func(v float64) bool { return v > l.Ceiling+riskSlack && v > l.Utilization.Before+riskSlack }
		above := fmt.Sprintf("above its ceiling of %.0f%%; %.1f%% now", 100*l.Ceiling, 100*l.Utilization.Before)
		switch u := l.Utilization; {
		case worse(u.First) && worse(u.Settled):
			note(concernFull, over(u.Settled, l.Ceiling), l.Locality, "utilization of %s is %s, %s", l.Locality,
				bothTimes(fmt.Sprintf("%.1f%%", 100*u.First), fmt.Sprintf("%.1f%%", 100*u.Settled)), above)
		case worse(u.First):
			note(concernEarly, over(u.First, l.Ceiling), l.Locality, "utilization of %s is %.1f%% after the first tick, %s", l.Locality, 100*u.First, above)
		case worse(u.Settled):
			note(concernFull, over(u.Settled, l.Ceiling), l.Locality, "utilization of %s is %.1f%% once settled, %s", l.Locality, 100*u.Settled, above)
		}
	}
	return out
}

// bothTimes says what a number is after the first tick and once settled.
func bothTimes(first, settled string) string {
	if first == settled {
		return first + " after the first tick and later"
	}
	return first + " after the first tick and " + settled + " once settled"
}

// Mean latency that rises by at most one of these is not worse: it is computed from capacities
// and round-trip times that are known with some error.
const (
	latencyRisePart = 0.05 // of what it was
	latencyRiseMS   = 1.0
)

// Slower lists the services whose mean latency rises. A change of the configuration should not
// do this. The loss of a zone always does, so it is not among the risks of a [Preview].
func (d *Difference) Slower() []Risk {
	var out []Risk
	for i := range d.Services {
		s := &d.Services[i]
		worse := func(ms float64) bool {
			return s.Latency.Before > 0 && ms > (1+latencyRisePart)*s.Latency.Before && ms > s.Latency.Before+latencyRiseMS
		}
		text := ""
		switch first, settled := fmt.Sprintf("%.2f ms", s.Latency.First), fmt.Sprintf("%.2f ms", s.Latency.Settled); {
		case worse(s.Latency.First) && worse(s.Latency.Settled) && first != settled:
			text = fmt.Sprintf("%s after the first tick and %s once settled", first, settled)
		case worse(s.Latency.Settled):
			text = settled
		case worse(s.Latency.First):
			text = fmt.Sprintf("%s after the first tick, and is %s once settled", first, settled)
		}
		if text != "" {
			out = append(out, Risk{Service: s.Service, Text: fmt.Sprintf("%s: mean latency rises from %.2f ms to %s", s.Service, s.Latency.Before, text)})
		}
	}
	return out
}
