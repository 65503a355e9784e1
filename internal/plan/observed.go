package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// observed finds what requests tell of a locality; nil when nothing does.
func (s *Service) observed(l isobar.Locality) *ObservedCapacity {
	i, ok := slices.BinarySearchFunc(s.Observed, l, func(x ObservedCapacity, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !ok {
		return nil
	}
	return &s.Observed[i]
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

// Capacity tells what is known of the capacity of a site.
func (s *Service) Capacity(i int) CapacityExplained {
	site := &s.Sites[i]
	out := CapacityExplained{Locality: site.Group.Locality, Declared: s.declaredCapacity(i), InUse: site.Capacity}
	o := s.observed(site.Group.Locality)
	if o == nil {
		out.Why = "no client has told of its requests in progress, and no endpoint of its utilization"
		return out
	}
	units := s.units(i) * orDefault(s.Spec.Localities[i].CapacityScaler, 1)
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

// ToldCapacity tells what the requests tell of a site; nothing where they don't.
func (s *Service) ToldCapacity(i int) CapacityExplained {
	if o := s.observed(s.Sites[i].Group.Locality); o == nil || !o.Estimate.Known {
		return CapacityExplained{}
	}
	return s.Capacity(i)
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

// Contradictions names the localities whose declared capacity the requests
// contradict by far.
func (s *Service) Contradictions() []Trouble {
	var out []Trouble
	for i := range s.Sites {
		if c := s.ToldCapacity(i); c.Contradicted && !s.Spec.CapacityTrust.Observed() {
			text := fmt.Sprintf("%s: %s; set max_rate, or leave out capacity_trust: declared", c.Locality, c.String())
			out = append(out, Trouble{TroubleContradicted, c.Locality, text})
		}
	}
	return out
}

// Rules of what slow and failing localities cost.
const (
	slowerBy   = 1.25  // times the usual service time that counts as usual; what is slower by twice as much counts in full
	slowerByMS = 1.0   // the same, ms
	leastError = 0.003 // part of the requests that fails whatever the load, below which it costs nothing
)

// extraCosts gives what a request costs in each site beyond what is usual, in ms,
// because requests take longer there without queueing, or fail whatever the load.
// It is nil where all are alike.
func (d *draft) extraCosts() []float64 {
	usual := d.usualServiceMS()
	if usual <= 0 {
		return nil
	}
	var out []float64
	for i := range d.sites {
		o := d.observed(d.sites[i].Group.Locality)
		if o == nil {
			continue
		}
		cost := 0.0
		if slower := 1000*o.Estimate.Quick - usual; slower > 0 {
			usually := max((slowerBy-1)*usual, slowerByMS)
			cost = min(slower, max(0, 2*(slower-usually)))
		}
		if o.Losing > leastError {
			cost += (o.Losing - leastError) * d.errorCost()
		}
		if cost > 0 {
			if out == nil {
				out = make([]float64, len(d.sites))
			}
			out[i] = cost
		}
	}
	return out
}

// usualServiceMS is the median of the service times of the service's localities, by their
// lower quartiles, ms; 0 where nothing is observed.
func (d *draft) usualServiceMS() float64 {
	var quick []float64
	for i := range d.Observed {
		if q := d.Observed[i].Estimate.Quick; q > 0 {
			quick = append(quick, q)
		}
	}
	if len(quick) == 0 {
		return 0
	}
	slices.Sort(quick)
	return 1000 * quick[(len(quick)-1)/2]
}

// observedService gives all sites the service time that requests tell, where neither it
// nor any concurrency is declared: how long queues are at some utilization depends on how
// many requests a locality works on at once.
func (d *draft) observedService() {
	usual := d.usualServiceMS()
	if d.Spec.ServiceTimeMS > 0 || usual <= 0 {
		return
	}
	for i := range d.Spec.Localities {
		if declaredConcurrency(&d.Spec.Localities[i]) > 0 {
			return
		}
	}
	// Rounded, since each other problem is solved anew.
	usual = math.Exp2(math.Round(serviceSteps*math.Log2(usual)) / serviceSteps)
	for i := range d.sites {
		if s := &d.sites[i]; s.servers > 0 {
			s.servers = s.Capacity * usual / 1000
		}
	}
}

// serviceSteps is how many service times an octave has that are told apart.
const serviceSteps = 4

// errorCost is what a failed request counts as, ms: as configured, else how long
// clients wait for it.
func (d *draft) errorCost() float64 {
	timeout := float64(d.Spec.RequestTimeout.Duration()) / float64(time.Millisecond)
	return orDefault(d.Spec.ErrorCostMS, orDefault(timeout, isobar.DefaultErrorCostMS))
}

// applyObserved gives sites the capacity that the requests tell, where the
// service trusts them.
func (d *draft) applyObserved() {
	if !d.Spec.CapacityTrust.Observed() {
		return
	}
	d.extra = d.extraCosts()
	for i := range d.sites {
		s := &d.sites[i]
		o := d.observed(s.Group.Locality)
		if o == nil || o.InUse <= 0 || s.Unreachable || s.weight == 0 {
			continue
		}
		sl := &d.Spec.Localities[i]
		if !s.declared {
			s.learned = true
			s.Capacity, s.Nominal = o.InUse*s.weight, o.InUse*s.nominalWeight
			s.servers = servers(d.Spec, sl, s.Capacity)
			continue
		}
		if o.Declared <= 0 {
			continue
		}
		by := o.InUse / o.Declared
		s.Capacity, s.Nominal = s.Capacity*by, s.Nominal*by
		if declaredConcurrency(sl) <= 0 {
			s.servers *= by
		}
	}
	d.observedService()
}
