package load

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// LimitState says how much is known of the rate at which a limited quantity
// reaches its limit.
type LimitState string

// The states. In all but the first three the estimate is inconclusive, and the limit does not
// enter. A limit in force stays while the reports agree, or for a while after they end.
const (
	LimitExact    LimitState = "exact" // it is about the rate itself
	LimitLearned  LimitState = "learned"
	LimitAssumed  LimitState = "above its limit at a steady rate: taken as in proportion to it"
	LimitAbsent   LimitState = "it was never reported"
	LimitFew      LimitState = "too few reports of it"
	LimitConstant LimitState = "the rate hardly changes"
	LimitFar      LimitState = "it is far below its limit"
	LimitPoor     LimitState = "it does not follow the rate"
	LimitStale    LimitState = "it is not reported any more"
)

// Tells reports whether the state has a usable rate.
func (s LimitState) Tells() bool { return s == LimitExact || s == LimitLearned || s == LimitAssumed }

// limitStates are those of lines that tell nothing, or something.
var limitStates = map[CapacityState]LimitState{
	CapacityLearned: LimitLearned, CapacityFew: LimitFew, CapacityConstant: LimitConstant,
	CapacityIdle: LimitFar, CapacityPoor: LimitPoor, CapacityStale: LimitStale,
}

// Dimension is one limit of a service in one locality, as far as it is known. Rates are
// requests/s of one endpoint, so that endpoints may come and go.
type Dimension struct {
	Locality isobar.Locality `json:"locality"`
	Limit    isobar.Limit    `json:"limit"`
	State    LimitState      `json:"state"`
	At       time.Time       `json:"at"`    // of the newest window with it; zero = none
	Value    float64         `json:"value"` // in it, of an endpoint, in the metric's own unit
	// PerEndpoint is the rate at which the quantity reaches its limit, Low and High
	// its interval (two standard errors; 0 where there is none); 0 = it is
	// unknown now.
	PerEndpoint float64 `json:"per_endpoint,omitempty"`
	Low         float64 `json:"low,omitempty"`
	High        float64 `json:"high,omitempty"`
	// InUse is the rate for plans. It follows PerEndpoint slowly and outlives it while the
	// reports agree; 0 = there is none.
	InUse float64 `json:"in_use,omitempty"`
	// Refuted says that the quantity stayed above its limit when load was removed:
	// that does not help.
	Refuted bool `json:"refuted,omitempty"`

	Fit Fit `json:"fit"`
}

// Rules of limits, beside those of learning. Counts are windows of one report
// interval.
const (
	leastPart     = 0.10 // of the limit, below which the estimate is inconclusive
	mostRest      = 0.90 // of the limit, without load
	mostPart      = 10   // of the limit: how far above it something is says no more from there on
	recentPart    = 1.0 / 3
	followGain    = 0.25
	holdLimit     = 60 // intervals without reports for which a limit stays in force
	headroomAbove = 1.25
	tried         = 0.75 // of the rate at which the quantity came above its limit: if that does not help, nothing does
)

var limitRules = lineRules{leastMean: leastPart, mostOffset: mostRest, bent: true}

// Dimensions learns at which rate limited quantities reach their limits. It is
// owned by one goroutine; call Observe at every tick with the newest load.
type Dimensions struct {
	interval time.Duration
	services map[string][]*siteLimits // sorted by locality
}

// siteLimits is one locality of a service.
type siteLimits struct {
	locality isobar.Locality
	list     []*dimension // in the order of the service's limits
}

// NewDimensions makes one that knows nothing.
func NewDimensions(settings Settings) *Dimensions {
	return &Dimensions{interval: settings.interval(), services: map[string][]*siteLimits{}}
}

// SetInterval changes the report interval that clients are asked for.
func (d *Dimensions) SetInterval(interval time.Duration) {
	d.interval = Settings{Interval: interval}.interval()
}

// Retain drops everything about services for which keep tells false.
func (d *Dimensions) Retain(keep func(service string) bool) {
	for name := range d.services { //isobar:sorted each is kept or dropped for itself
		if !keep(name) {
			delete(d.services, name)
		}
	}
}

// Adopt takes over the limits that an earlier process learned, unless some are known for the
// service. Invalid ones are left out.
func (d *Dimensions) Adopt(service string, known []Dimension) {
	if d.services[service] != nil {
		return
	}
	for _, k := range ValidDimensions(known) {
		s := d.site(service, k.Locality)
		s.list = append(s.list, &dimension{Dimension: k, told: enterWindows})
	}
}

func (d *Dimensions) site(service string, l isobar.Locality) *siteLimits {
	list := d.services[service]
	i, found := slices.BinarySearchFunc(list, l, func(x *siteLimits, l isobar.Locality) int { return x.locality.Compare(l) })
	if !found {
		list = slices.Insert(list, i, &siteLimits{locality: l})
		d.services[service] = list
	}
	return list[i]
}

// Observe takes the load, the limits and the sites of a service. It returns the known limits,
// sorted by locality, then in the order of the limits. Limits of the rate need no learning and
// are not returned. It reads at most one window an interval.
func (d *Dimensions) Observe(now time.Time, s *ServiceLoad, limits []isobar.Limit, sites []Site) []Dimension {
	if len(limits) == 0 {
		delete(d.services, s.Name)
		return nil
	}
	var out []Dimension
	for i := range sites {
		site := &sites[i]
		at := d.site(s.Name, site.Locality)
		at.arrange(limits)
		j, found := slices.BinarySearchFunc(s.Sites, site.Locality, func(x SiteLoad, l isobar.Locality) int { return x.Locality.Compare(l) })
		for _, x := range at.list {
			if found && s.Covered && site.Size > 0 {
				x.observe(now, &s.Sites[j], site, d.interval)
			}
			x.expire(now, site, d.interval)
		}
	}
	d.services[s.Name] = slices.DeleteFunc(d.services[s.Name], func(x *siteLimits) bool {
		return !slices.ContainsFunc(sites, func(site Site) bool { return site.Locality == x.locality })
	})
	for _, at := range d.services[s.Name] {
		for _, x := range at.list {
			out = append(out, x.Dimension)
		}
	}
	return out
}

// arrange makes the list match the configured limits. Knowledge of a quantity stays when its
// limit changes.
func (s *siteLimits) arrange(limits []isobar.Limit) {
	n := 0
	same := true
	for i := range limits {
		if limits[i].Metric == isobar.MetricRate {
			continue
		}
		same = same && n < len(s.list) && s.list[n].Limit == limits[i]
		n++
	}
	if same && n == len(s.list) {
		return
	}
	before := s.list
	s.list = make([]*dimension, 0, n)
	for i := range limits {
		if limits[i].Metric != isobar.MetricRate {
			s.list = append(s.list, limited(s.locality, limits[i], before))
		}
	}
}

// limited derives the dimension of a limit from its quantity.
func limited(at isobar.Locality, limit isobar.Limit, before []*dimension) *dimension {
	var known *dimension
	for _, x := range before {
		if x.Limit.Metric == limit.Metric && (known == nil || x.Limit.DryRun == limit.DryRun) {
			known = x
		}
	}
	if known == nil {
		return &dimension{Dimension: Dimension{Locality: at, Limit: limit, State: LimitAbsent}}
	}
	x := *known
	x.Limit = limit
	if known.Limit.DryRun != limit.DryRun {
		x.InUse = 0 // a limit that never acted starts from the rate in force
	}
	if ratio := known.Limit.Max / limit.Max; ratio != 1 {
		x.Fit.scale(ratio)
		x.part *= ratio
		x.PerEndpoint, x.Low, x.High, x.Refuted = 0, 0, 0, false
		if x.State == LimitLearned {
			x.PerEndpoint = max(0, (1-x.Fit.Offset)/x.Fit.Slope)
			x.Low, x.High = x.PerEndpoint, x.PerEndpoint
		}
	}
	return &x
}

// ValidDimensions returns the valid dimensions, sorted by locality, each metric of a locality
// once as a dry run and once not: saved state may be damaged.
func ValidDimensions(known []Dimension) []Dimension {
	out := slices.DeleteFunc(slices.Clone(known), func(k Dimension) bool { return !k.valid() })
	slices.SortStableFunc(out, func(a, b Dimension) int { return a.Locality.Compare(b.Locality) })
	kept := out[:0]
	for i := range out {
		k := &out[i]
		if !slices.ContainsFunc(kept, func(o Dimension) bool {
			return o.Locality == k.Locality && o.Limit.Metric == k.Limit.Metric && o.Limit.DryRun == k.Limit.DryRun
		}) {
			kept = append(kept, *k)
		}
	}
	return kept
}

// valid reports whether a saved dimension is valid.
func (d *Dimension) valid() bool {
	for _, v := range [...]float64{d.PerEndpoint, d.Low, d.High, d.InUse, max(d.Value, -d.Value)} {
		if !(v >= 0 && v < 1e18) {
			return false
		}
	}
	_, err := isobar.ParseLimitMetric(d.Limit.Metric)
	return err == nil && d.Limit.Metric != isobar.MetricRate && d.Limit.Max > 0 && d.Limit.Max < 1e18 && d.Fit.valid()
}
