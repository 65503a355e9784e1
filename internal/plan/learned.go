package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// LearnedService is what was learned of the capacities of one service.
type LearnedService struct {
	Service    string
	Localities []load.Capacity    // sorted by locality
	Dimensions []load.Dimension   // of its limits, sorted by locality
	Observed   []ObservedCapacity // from what requests experience, sorted by locality
}

func learnedOf(all []LearnedService, service string) LearnedService {
	i, ok := slices.BinarySearchFunc(all, service, func(x LearnedService, n string) int { return strings.Compare(x.Service, n) })
	if !ok {
		return LearnedService{Service: service}
	}
	return all[i]
}

// PlannedSite is one locality of a planned service, with what is known of its capacity
// and its limits.
type PlannedSite struct {
	of    *Service
	index int
}

func (p PlannedSite) spec() *isobar.ServiceLocality { return &p.of.Spec.Localities[p.index] }
func (p PlannedSite) site() *assign.Site            { return &p.of.Sites[p.index] }
func (p PlannedSite) locality() isobar.Locality     { return p.of.Spec.Localities[p.index].Locality }

// declared returns the declared capacity of the healthy endpoints, requests/s; 0 when it
// is not declared.
func (p PlannedSite) declared() float64 {
	rates, declared := endpointRates(p.spec())
	if !declared {
		return 0
	}
	sum := 0.0
	for j := range rates {
		if p.site().Group.Endpoints[j].Health.Usable() {
			sum += rates[j]
		}
	}
	return sum * orDefault(p.spec().CapacityScaler, 1)
}

// Bases of a capacity.
const (
	CapacityDeclared  = "declared"  // by the configuration
	CapacityEstimated = "estimated" // from what requests or reports of utilization tell
	CapacityAssumed   = "assumed"   // neither: what the demand needs, or the same for all endpoints
)

// agrees is how far a capacity in use may be from the declared one and count as the same.
const agrees = 1.01

// CapacityBasis tells what the capacity rests on.
func (p PlannedSite) CapacityBasis() string {
	_, declared := endpointRates(p.spec())
	o, k := p.observed(), p.learned()
	switch {
	case declared && o != nil && alike(o.InUse, o.Declared, agrees): // requests agree
		return CapacityDeclared
	case o != nil && o.InUse > 0, !declared && k != nil && k.InUse > 0:
		return CapacityEstimated
	case declared:
		return CapacityDeclared
	default:
		return CapacityAssumed
	}
}

// hasCapacity reports whether the capacity is more than a guess.
func (p PlannedSite) hasCapacity() bool {
	return p.site().Capacity > 0 && (p.declared() > 0 || p.of.learns())
}

// learned finds what was learned of the capacity; nil when nothing was.
func (p PlannedSite) learned() *load.Capacity {
	i, ok := slices.BinarySearchFunc(p.of.Learned, p.locality(), func(x load.Capacity, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !ok {
		return nil
	}
	return &p.of.Learned[i]
}

// units is the weight of the endpoints that take traffic; 0 where none may.
func (p PlannedSite) units() float64 {
	site := p.site()
	if site.Drained || site.Unreachable {
		return 0
	}
	sum := 0.0
	for j := range site.Group.Endpoints {
		if site.Group.Endpoints[j].Health.Usable() {
			sum += float64(max(1, p.spec().Endpoints[j].Weight))
		}
	}
	return sum
}

// LearnedExplained is the capacity of a locality as learned from reports of utilization.
type LearnedExplained struct {
	State    load.CapacityState `json:"state"`
	Capacity float64            `json:"capacity,omitempty"` // requests/s of the healthy endpoints; 0 = inconclusive
	Low      float64            `json:"low,omitempty"`      // of the interval
	High     float64            `json:"high,omitempty"`
	InUse    float64            `json:"in_use,omitempty"` // capacity that the plan uses, if none is declared
	AgeMS    float64            `json:"age_ms"`           // of the newest window that was used, when the plan was made
}

// String says it in words.
func (l *LearnedExplained) String() string {
	var parts []string
	if l.Capacity > 0 {
		parts = append(parts, fmt.Sprintf("capacity learned: %.0f/s (%.0f to %.0f)", l.Capacity, l.Low, l.High))
	} else {
		parts = append(parts, "capacity can't be learned now: "+string(l.State))
	}
	if l.InUse > 0 {
		parts = append(parts, fmt.Sprintf("%.0f/s in use", l.InUse))
	}
	return strings.Join(parts, ", ")
}

// Learned tells what was learned of the capacity, in requests/s of the healthy endpoints,
// for a plan that was made at a time; nil when no utilization was ever reported.
func (p PlannedSite) Learned(made time.Time) *LearnedExplained {
	k := p.learned()
	if k == nil {
		return nil
	}
	units := p.units() * orDefault(p.spec().CapacityScaler, 1)
	out := &LearnedExplained{
		State: k.State, Capacity: k.PerUnit * units, Low: k.Low * units, High: k.High * units,
		AgeMS: made.Sub(k.At).Seconds() * 1000,
	}
	if _, declared := endpointRates(p.spec()); !declared {
		out.InUse = k.InUse * units
	}
	return out
}

// wrongBy is how far a declaration may be from the interval of what is learned.
const wrongBy = 1.25

// learnedWarnings name declarations that the reports contradict.
func (e *explainer) learnedWarnings() []string {
	var out []string
	for i := range e.s.Sites {
		declared := e.s.Site(i).declared()
		l := e.s.Site(i).Learned(e.plan.Made)
		if l == nil || l.Capacity <= 0 || declared <= 0 {
			continue
		}
		if declared > wrongBy*l.High || wrongBy*declared < l.Low {
			out = append(out, fmt.Sprintf("%s declares %.0f requests/s, but the utilization that it reports says %.0f (%.0f to %.0f): look at max_rate",
				e.s.Sites[i].Group.Locality, declared, l.Capacity, l.Low, l.High))
		}
	}
	return out
}

// observed returns the capacity that requests show; nil when they show none.
func (p PlannedSite) observed() *ObservedCapacity {
	i, ok := slices.BinarySearchFunc(p.of.Observed, p.locality(), func(x ObservedCapacity, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !ok {
		return nil
	}
	return &p.of.Observed[i]
}

// followsDemand reports whether nothing is known of the capacity, so that the plan takes
// what demand needs: then it is no cause.
func (p PlannedSite) followsDemand() bool {
	o := p.observed()
	return p.Counting() == CountsEqualShare && (o == nil || o.InUse <= 0)
}

// CapacityExplained is what Isobar knows about the capacity of one locality. Rates are requests/s of
// the endpoints that take traffic.
type CapacityExplained struct {
	Locality isobar.Locality `json:"locality"`
	Declared float64         `json:"declared,omitempty"` // 0 = it is not
	InUse    float64         `json:"in_use"`             // capacity that the plan uses
	// Known reports whether the requests determine an interval, from Low to High. If they do not,
	// both are 0.
	Known bool    `json:"known"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Contradicted reports whether the declaration is far outside the interval.
	Contradicted bool `json:"contradicted,omitempty"`
	// Why names the evidence for the interval, or the reason why there is none.
	Why   string    `json:"why"`
	Since time.Time `json:"since,omitzero"` // time since which there is an interval, or none

	Rate       float64 `json:"rate"`        // of the newest window
	InProgress float64 `json:"in_progress"` // requests at the servers in it
	Expected   float64 `json:"expected"`    // the same, if the declared capacity were right
	Failing    float64 `json:"failing"`     // part of the requests that failed in it
	ServiceMS  float64 `json:"service_ms"`  // estimated time of one request without queueing
	Shedding   float64 `json:"shedding"`    // probability that the servers refuse excess requests
}

// farOff is how far a declaration may be from the interval that the requests tell.
const farOff = 1.25

// Capacity tells what is known of the capacity.
func (p PlannedSite) Capacity() CapacityExplained {
	out := CapacityExplained{Locality: p.locality(), Declared: p.declared(), InUse: p.site().Capacity}
	o := p.observed()
	if o == nil {
		out.Why = "no client has reported its requests in progress, and no endpoint its utilization"
		return out
	}
	units := p.units() * orDefault(p.spec().CapacityScaler, 1)
	out.Since, out.Rate, out.InProgress, out.Expected, out.Failing = o.Since, o.Rate, o.InProgress, o.Expected, o.Failing
	out.ServiceMS, out.Shedding = 1000*o.Estimate.Service, o.Estimate.Shedding
	if !o.Estimate.Known {
		out.Why = fmt.Sprintf("%.0f/s with %s requests in progress is consistent with too many capacities", o.Rate, requests(o.InProgress))
		return out
	}
	out.Known, out.Low, out.High = true, o.Estimate.Low*units, o.Estimate.High*units
	out.Contradicted = out.Declared > 0 && out.High > 0 && (out.Declared > farOff*out.High || farOff*out.Declared < out.Low)
	out.Why = fmt.Sprintf("%s requests in progress at %.0f/s", requests(o.InProgress), o.Rate)
	if o.Expected > 0 {
		out.Why = fmt.Sprintf("%s requests in progress, %s expected at %.0f/s", requests(o.InProgress), requests(o.Expected), o.Rate)
	}
	if o.Failing >= 0.01 {
		out.Why += fmt.Sprintf(", %.0f%% fail", 100*o.Failing)
	}
	return out
}

// ObservedCapacity returns the capacity estimated from requests; the zero value if there is
// no estimate.
func (p PlannedSite) ObservedCapacity() CapacityExplained {
	if o := p.observed(); o == nil || !o.Estimate.Known {
		return CapacityExplained{}
	}
	return p.Capacity()
}

// requests shows a number of requests.
func requests(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// String says in one sentence what the requests tell.
func (c *CapacityExplained) String() string {
	declared := "capacity is not declared"
	if c.Declared > 0 {
		declared = fmt.Sprintf("declared %.0f/s", c.Declared)
	}
	if !c.Known {
		return declared + "; from requests inconclusive: " + c.Why
	}
	return fmt.Sprintf("%s; from requests %.0f to %.0f/s: %s", declared, c.Low, c.High, c.Why)
}

// Contradictions names the localities of a service whose declared capacity the requests
// contradict by far.
func Contradictions(s *Service) []Trouble {
	var out []Trouble
	for i := range s.Sites {
		if c := s.Site(i).ObservedCapacity(); c.Contradicted && !s.Spec.CapacityTrust.Observed() {
			text := fmt.Sprintf("%s: %s; set max_rate, or leave out capacity_trust: declared", c.Locality, c.String())
			out = append(out, Trouble{TroubleContradicted, c.Locality, text})
		}
	}
	return out
}
