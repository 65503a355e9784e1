package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// observed finds what requests tell of the capacity; nil when nothing does.
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

// CapacityExplained is what is known of the capacity of one locality. Rates are
// requests/s of the endpoints that take traffic.
type CapacityExplained struct {
	Locality isobar.Locality `json:"locality"`
	Declared float64         `json:"declared,omitempty"` // 0 = it is not
	InUse    float64         `json:"in_use"`             // what the plan goes by
	// Known says whether the requests tell an interval: from Low to High. Where they
	// don't, these are 0.
	Known bool    `json:"known"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Contradicted says that the interval is far from what is declared.
	Contradicted bool `json:"contradicted,omitempty"`
	// Why says what the interval rests on, or why there is none.
	Why   string    `json:"why"`
	Since time.Time `json:"since,omitzero"` // since when an interval is told, or none

	Rate       float64 `json:"rate"`        // of the newest window
	InProgress float64 `json:"in_progress"` // requests at the servers in it
	Expected   float64 `json:"expected"`    // the same, were the declared capacity right
	Failing    float64 `json:"failing"`     // part of the requests that failed in it
	ServiceMS  float64 `json:"service_ms"`  // estimated time of one request without queueing
	Shedding   float64 `json:"shedding"`    // probability that the servers refuse what is too much
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
		out.Why = fmt.Sprintf("%.0f/s with %s in progress fit too many capacities", o.Rate, requests(o.InProgress))
		return out
	}
	out.Known, out.Low, out.High = true, o.Estimate.Low*units, o.Estimate.High*units
	out.Contradicted = out.Declared > 0 && out.High > 0 && (out.Declared > farOff*out.High || farOff*out.Declared < out.Low)
	out.Why = fmt.Sprintf("%s in progress at %.0f/s", requests(o.InProgress), o.Rate)
	if o.Expected > 0 {
		out.Why = fmt.Sprintf("%s in progress where %s are expected at %.0f/s", requests(o.InProgress), requests(o.Expected), o.Rate)
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
		return declared + "; requests can't tell: " + c.Why
	}
	return fmt.Sprintf("%s; requests say %.0f to %.0f/s: %s", declared, c.Low, c.High, c.Why)
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
