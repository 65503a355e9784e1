package load

import (
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// CapacityState says how well the capacity of a locality is known.
type CapacityState string

// The states of learning a capacity from reported utilization (ORCA) and landed requests.
const (
	CapacityLearned  CapacityState = "learned"
	CapacityFew      CapacityState = "too few windows with utilization"
	CapacityConstant CapacityState = "the rate hardly changes"
	CapacityIdle     CapacityState = "utilization is too low"
	CapacityPoor     CapacityState = "utilization does not follow the rate"
	CapacityStale    CapacityState = "no utilization is reported any more"
	CapacityFull     CapacityState = "utilization stays at its end: it serves no more than lands"
)

// tells reports whether the state has a usable capacity.
func (s CapacityState) tells() bool { return s == CapacityLearned || s == CapacityFull }

// Capacity is the learned capacity of one locality of a service. Rates are per unit of endpoint
// weight, requests/s, so that endpoints may come and go.
type Capacity struct {
	Locality isobar.Locality `json:"locality"`
	State    CapacityState   `json:"state"`
	At       time.Time       `json:"at"` // of the newest window that was used
	Units    float64         `json:"units"`
	// PerUnit is the rate of one unit at utilization 1, Low and High its interval (two standard
	// errors); 0 when the estimate is inconclusive now.
	PerUnit float64 `json:"per_unit,omitempty"`
	Low     float64 `json:"low,omitempty"`
	High    float64 `json:"high,omitempty"`
	// InUse is the capacity for plans if none is declared. It follows PerUnit slowly and outlives
	// it while the reports agree; 0 = there is none.
	InUse float64 `json:"in_use,omitempty"`

	Fit Fit `json:"fit"`
}

// Rules of learning. Counts are windows of one report interval.
const (
	fewWindows    = 20.0 // effective number, less of which says nothing
	memoryWindows = 120  // time constant of forgetting
	leastSpread   = 0.08 // relative standard deviation of the rate
	leastMean     = 0.10 // utilization
	mostUtilized  = 0.95 // above it utilization no longer grows with the rate
	mostOffset    = 0.50 // utilization without any load, beyond which it is not about load
	littleOffset  = 0.03 // the same, which is none
	mostResidual  = 0.25 // standard deviation of the residuals, of the mean
	mostInterval  = 0.25 // half the interval, of the estimate
	outlierSigmas = 4.0  // residuals beyond which a window is doubted
	outlierFloor  = 0.10 // of the predicted utilization, below which no window is an outlier
	stepWindows   = 6    // doubted windows in a row that are a change
	enterWindows  = 6    // windows in a row that must be able to tell before plans follow it
	paceStep      = 0.05 // the largest change of the capacity in use in a window, and its tolerance
	disagreement  = 0.25 // of utilization, between the capacity in use and the reports
	dropWindows   = 12   // windows in a row of disagreement that end it
	staleWindows  = 12   // intervals without utilization
	saturatedFor  = 6    // windows in a row at the end of utilization that are no chance
	fullWeight    = 1.0 / 3
	leastOfFull   = 0.5 // of the landed rate when utilization reached its maximum: a metric may be wrong
)

// Capacities learns the capacities of localities. It is owned by one goroutine; call Observe at
// every tick with the newest load.
type Capacities struct {
	interval time.Duration
	services map[string][]*learner // sorted by locality
}

// learner is one locality of a service.
type learner struct {
	Capacity

	told int // windows in a row that could tell
	off  int // windows in a row that disagree with the capacity in use

	full  int     // windows in a row at the end of utilization
	began float64 // requests/s of a unit when they began
	lands float64 // the same recently

	line line
}

// capacityRules are those for utilization.
var capacityRules = lineRules{leastMean: leastMean, mostOffset: mostOffset}

// NewCapacities makes one that knows nothing.
func NewCapacities(settings Settings) *Capacities {
	return &Capacities{interval: settings.interval(), services: map[string][]*learner{}}
}

// SetInterval changes the report interval that clients are asked for.
func (c *Capacities) SetInterval(interval time.Duration) {
	c.interval = Settings{Interval: interval}.interval()
}

// Services lists the services that something is kept about, sorted.
func (c *Capacities) Services() []string { return slices.Sorted(maps.Keys(c.services)) }

// Forget drops everything about a service that is gone.
func (c *Capacities) Forget(service string) { delete(c.services, service) }

// Adopt takes over the capacities that an earlier process learned, unless some are known for the
// service. Invalid ones are left out.
func (c *Capacities) Adopt(service string, known []Capacity) {
	if c.services[service] != nil {
		return
	}
	for _, k := range ValidCapacities(known) {
		c.learner(service, k.Locality).Capacity = k
	}
}

func (c *Capacities) learner(service string, l isobar.Locality) *learner {
	list := c.services[service]
	i, found := slices.BinarySearchFunc(list, l, func(x *learner, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !found {
		list = slices.Insert(list, i, &learner{Capacity: Capacity{Locality: l, State: CapacityFew}})
		c.services[service] = list
	}
	return list[i]
}

// Observe takes the load and the sites of a service, and returns the capacities of localities
// with reported utilization, sorted by locality. It reads at most one window an interval.
func (c *Capacities) Observe(now time.Time, s *ServiceLoad, sites []Site) []Capacity {
	for i := range sites {
		site := &sites[i]
		j, found := slices.BinarySearchFunc(s.Sites, site.Locality, func(x SiteLoad, l isobar.Locality) int { return x.Locality.Compare(l) })
		if !found || site.Units <= 0 || s.Sites[j].Utilization <= 0 || !s.Covered {
			continue
		}
		l := c.learner(s.Name, site.Locality)
		if now.Sub(l.At) < c.interval*9/10 {
			continue
		}
		l.At, l.Units = now, site.Units
		l.take(s.Sites[j].Issued/site.Units, s.Sites[j].Utilization, c.interval.Seconds())
		l.follow(site.Given/site.Units, s.Sites[j].Issued/site.Units, s.Sites[j].Utilization)
	}
	c.services[s.Name] = slices.DeleteFunc(c.services[s.Name], func(l *learner) bool {
		return !slices.ContainsFunc(sites, func(x Site) bool { return x.Locality == l.Locality })
	})
	if len(c.services[s.Name]) == 0 {
		delete(c.services, s.Name)
		return nil
	}
	out := make([]Capacity, 0, len(c.services[s.Name]))
	for _, l := range c.services[s.Name] {
		if now.Sub(l.At) > staleWindows*c.interval {
			l.State, l.PerUnit, l.Low, l.High, l.told = CapacityStale, 0, 0, 0, 0
		}
		out = append(out, l.Capacity)
	}
	return out
}

// take adds one window and draws the line again. At its end utilization can't grow
// with the rate any more, and the line would bend: but no more is served than lands.
func (l *learner) take(rate, utilization, seconds float64) {
	if utilization > mostUtilized {
		l.fill(rate)
		return
	}
	l.full = 0
	if l.line.take(&l.Fit, l.State == CapacityLearned, rate, utilization) {
		l.State, l.PerUnit, l.Low, l.High = l.Fit.solve(1/(l.Units*seconds), capacityRules)
	}
}

// fill takes a window at maximum utilization. Several in a row bound the capacity by the landed
// rate, unless the known capacity is lower already. It keeps at least half of the rate that
// landed at first, because the metric may be wrong.
func (l *learner) fill(rate float64) {
	if l.full++; l.full == 1 {
		l.began, l.lands = rate, rate
	}
	l.lands += (rate - l.lands) * fullWeight
	most := max(l.lands, leastOfFull*l.began)
	if l.full < saturatedFor || most <= 0 || l.State == CapacityLearned && l.PerUnit <= most {
		return
	}
	l.State, l.PerUnit, l.Low, l.High, l.told = CapacityFull, most, 0, most, enterWindows
}

// follow moves the capacity in use: gently towards the learned capacity, and away when nothing
// can be learned and the reports contradict it.
func (l *learner) follow(given, rate, utilization float64) {
	if !l.State.tells() {
		l.told = 0
		l.agree(rate, utilization)
		return
	}
	l.told, l.off = min(l.told+1, enterWindows), 0
	if l.told < enterWindows {
		return
	}
	if l.InUse <= 0 {
		l.InUse = l.PerUnit
		if given > 0 {
			l.InUse = given
		}
	}
	if step := l.PerUnit / l.InUse; step > 1+paceStep || step < 1-paceStep {
		l.InUse *= min(1+paceStep, max(1-paceStep, step))
	}
}

func (l *learner) agree(rate, utilization float64) {
	if l.InUse <= 0 {
		return
	}
	expected := l.Fit.Offset + (1-l.Fit.Offset)*rate/l.InUse
	off := utilization - min(1, expected)
	if max(off, -off) <= disagreement*max(utilization, leastMean) {
		l.off = 0
		return
	}
	if l.off++; l.off >= dropWindows {
		l.InUse, l.off = 0, 0
	}
}

// ValidCapacities returns the valid capacities, sorted by locality, each locality once: saved
// state may be damaged.
func ValidCapacities(known []Capacity) []Capacity {
	out := slices.DeleteFunc(slices.Clone(known), func(k Capacity) bool { return !k.valid() })
	slices.SortStableFunc(out, func(a, b Capacity) int { return a.Locality.Compare(b.Locality) })
	return slices.CompactFunc(out, func(a, b Capacity) bool { return a.Locality == b.Locality })
}

// valid reports whether a saved capacity is valid.
func (c *Capacity) valid() bool {
	for _, v := range [...]float64{c.Units, c.PerUnit, c.Low, c.High, c.InUse} {
		if !(v >= 0 && v < 1e15) {
			return false
		}
	}
	return c.Fit.valid()
}
