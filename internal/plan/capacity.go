package plan

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// What a site can serve follows from what is declared, and then, one after the
// other, from deviations, from what requests experience, from reports of utilization,
// from the demand where nothing else is known, and from limits on measured quantities.

// applyDeviations applies observed unmanaged load and removes capacity that nobody
// reaches.
func (s sites) applyDeviations(f *load.Deviations, mode isobar.Mode) {
	if mode == isobar.ModeObserve {
		return // nothing is served but the baseline and health
	}
	for _, found := range [][]load.Landing{f.Unmanaged, f.Unreported} {
		for _, b := range found {
			if i := s.index(b.Locality); i >= 0 {
				s[i].Unmanaged += b.Rate
			}
		}
	}
	// Evidence may remove half of the localities at most: evidence against more is more likely
	// wrong than right. Sources that do not reach those stay barred from them one by one.
	usable, drained := s.usable()
	may := usable/2 - drained
	for _, l := range f.Unreachable {
		i := s.index(l)
		if i < 0 || s[i].Group.Usable() == 0 || s[i].Drained {
			continue
		}
		if may <= 0 {
			break
		}
		may--
		at := &s[i]
		at.Unreachable, at.Capacity, at.servers, at.queues = true, 0, 0, 0
	}
}

// usable counts the sites with endpoints that take traffic, and those of
// them that are drained.
func (s sites) usable() (usable, drained int) {
	for i := range s {
		if s[i].Group.Usable() == 0 {
			continue
		}
		usable++
		if s[i].Drained {
			drained++
		}
	}
	return usable, drained
}

// Rules of what slow and failing localities cost.
const (
	slowerBy   = 1.25  // times the usual service time that counts as usual; what is slower by twice as much counts in full
	slowerByMS = 1.0   // the same, ms
	leastError = 0.003 // part of the requests that fails whatever the load, below which it costs nothing
)

// extraCosts returns what a request costs in each site beyond what is usual, in ms,
// because requests take longer there without queueing, or fail whatever the load.
// It is nil where all are alike.
func (s sites) extraCosts(of *Service) []float64 {
	usual := usualServiceMS(of.Observed)
	if usual <= 0 {
		return nil
	}
	var out []float64
	for i := range s {
		o := of.Site(i).observed()
		if o == nil {
			continue
		}
		cost := 0.0
		if slower := 1000*o.Estimate.Quick - usual; slower > 0 {
			usually := max((slowerBy-1)*usual, slowerByMS)
			cost = min(slower, max(0, 2*(slower-usually)))
		}
		if o.Losing > leastError {
			cost += (o.Losing - leastError) * errorCost(of.Spec)
		}
		if cost > 0 {
			if out == nil {
				out = make([]float64, len(s))
			}
			out[i] = cost
		}
	}
	return out
}

// usualServiceMS is the median of the service times of the service's localities, by their
// lower quartiles, ms; 0 where nothing is observed.
func usualServiceMS(observed []ObservedCapacity) float64 {
	var quick []float64
	for i := range observed {
		if q := observed[i].Estimate.Quick; q > 0 {
			quick = append(quick, q)
		}
	}
	if len(quick) == 0 {
		return 0
	}
	slices.Sort(quick)
	return 1000 * quick[(len(quick)-1)/2]
}

// applyServiceTime gives all sites the service time that requests tell, where neither it
// nor any concurrency is declared: how long queues are at some utilization depends on how
// many requests a locality works on at once.
func (s sites) applyServiceTime(of *Service) {
	usual := usualServiceMS(of.Observed)
	if of.Spec.ServiceTimeMS > 0 || usual <= 0 {
		return
	}
	for i := range of.Spec.Localities {
		if declaredConcurrency(&of.Spec.Localities[i]) > 0 {
			return
		}
	}
	// Rounded, since each other problem is solved again.
	usual = math.Exp2(math.Round(serviceSteps*math.Log2(usual)) / serviceSteps)
	for i := range s {
		if at := &s[i]; at.servers > 0 {
			at.servers = at.Capacity * usual / 1000
		}
	}
}

// serviceSteps is how many service times an octave has that are told apart.
const serviceSteps = 4

// errorCost is what a failed request counts as, ms: as configured, else how long
// clients wait for it.
func errorCost(spec *isobar.Service) float64 {
	timeout := float64(spec.RequestTimeout.Duration()) / float64(time.Millisecond)
	return orDefault(spec.ErrorCostMS, orDefault(timeout, isobar.DefaultErrorCostMS))
}

// applyObserved gives sites the capacity that the requests tell.
func (s sites) applyObserved(of *Service) {
	usual := usualServiceMS(of.Observed)
	for i := range s {
		at := &s[i]
		o := of.Site(i).observed()
		if o == nil || o.InUse <= 0 || at.Unreachable || at.weight == 0 {
			continue
		}
		sl := &of.Spec.Localities[i]
		if !at.declared {
			at.learned = true
			at.Capacity, at.Nominal = o.InUse*at.weight, o.InUse*at.nominalWeight
			at.servers = servers(of.Spec, sl, at.Capacity)
			continue
		}
		if o.Declared <= 0 {
			continue
		}
		by := o.InUse / o.Declared
		// A declared concurrency stays as it is in a locality that serves less: its requests take longer.
		// Where requests are clearly faster than capacity and concurrency tell, one that serves more
		// has more: else it would look faster than localities with too few requests to show it.
		if faster := usual > 0 && slowerBy*usual < 1000*at.servers/at.Capacity; declaredConcurrency(sl) <= 0 || by > 1 && faster {
			at.servers *= by
		}
		at.Capacity, at.Nominal = at.Capacity*by, at.Nominal*by
	}
	s.applyServiceTime(of)
}

// applyLearned gives sites without declared capacity what was learned of them.
// Endpoints of localities of which nothing is known count as the weakest that
// are: beside localities with queues, one without would look free. It is all or
// nothing only where nothing is known at all.
func (s sites) applyLearned(of *Service) {
	least := math.Inf(1)
	for i := range of.Learned {
		if u := of.Learned[i].InUse; u > 0 && s.index(of.Learned[i].Locality) >= 0 {
			least = min(least, u)
		}
	}
	if math.IsInf(least, 1) {
		return
	}
	for i := range s {
		at := &s[i]
		if at.declared || at.learned || at.Unreachable || at.weight == 0 {
			continue
		}
		perUnit := least
		if k := of.Site(i).learned(); k != nil && k.InUse > 0 {
			perUnit = k.InUse
		}
		at.learned = true
		at.Capacity = perUnit * at.weight
		at.Nominal = perUnit * at.nominalWeight
		at.servers = servers(of.Spec, &of.Spec.Localities[i], at.Capacity)
	}
}

// undeclaredSlack is how far above its region's mean rate per endpoint a
// locality without declared capacity keeps its own traffic.
const undeclaredSlack = 1.25

// applyDemand gives sites without declared capacity theirs: endpoints count
// equal, and a locality may carry up to 1.25 times the mean rate per endpoint
// of its region, or of the whole service where that is more: regions without
// demand of their own have headroom for that of others, and what comes from regions
// without endpoints fits too. There is no queue term: what is not known must
// not look precise. Without demand endpoints count as those with a known capacity.
func (s sites) applyDemand(from sources) {
	weights, demand := map[string]float64{}, map[string]float64{} // healthy endpoint weight, requests/s; by region
	var weight, rate, known, knownWeight float64
	for i := range s {
		at := &s[i]
		if at.Unreachable {
			continue
		}
		weights[at.Group.Locality.Region] += at.weight
		weight += at.weight
		if (at.declared || at.learned) && at.weight > 0 {
			known, knownWeight = known+at.Capacity*at.Ceiling, knownWeight+at.weight
		}
	}
	// Without demand nothing is known, which is not the same as no capacity.
	idle := 1.0
	if known > 0 {
		idle = known / knownWeight
	}
	for i := range from {
		demand[from[i].source.Region] += from[i].demand
		rate += from[i].demand
	}
	for i := range s {
		at := &s[i]
		if at.declared || at.learned || at.Unreachable || at.weight == 0 {
			continue
		}
		region := at.Group.Locality.Region
		mean := max(rate/weight, demand[region]/weights[region])
		if rate <= 0 {
			mean = idle
		}
		at.Capacity = (undeclaredSlack*mean*at.weight + at.Unmanaged) / at.Ceiling
		at.Nominal = at.Capacity
	}
}

// applyLimits lowers the ceilings of sites that a limit keeps below what they
// could carry by their capacity. Sites without a known capacity have one then.
func (s sites) applyLimits(of *Service) []LimitedSite {
	if len(of.Spec.Limits) == 0 {
		return nil
	}
	out := make([]LimitedSite, len(s))
	for i := range s {
		out[i] = s[i].limit(of, i)
	}
	return out
}

// limit does that for the site at i.
func (s *site) limit(of *Service, i int) LimitedSite {
	x := LimitedSite{By: -1}
	if s.Capacity <= 0 {
		return x
	}
	allowed := s.Ceiling * s.Capacity
	if s.declared || s.learned {
		x.Headroom = allowed
	}
	by, least := s.counting(of, i, x.Headroom)
	switch {
	case by < 0:
	case x.Headroom > 0 && least < allowed:
		x.By = by
		s.Ceiling *= least / allowed
	case x.Headroom == 0:
		x.By = by
		s.Nominal *= least / s.Ceiling / s.Capacity
		s.Capacity = least / s.Ceiling
	}
	return x
}

// counting finds the limit that allows the site at i the least, and how much that is,
// requests/s, what nobody reports included; -1 where none tells.
func (s *site) counting(of *Service, i int, headroom float64) (by int, least float64) {
	by = -1
	for j := range of.Spec.Limits {
		limit := &of.Spec.Limits[j]
		if limit.DryRun {
			continue
		}
		rate, _ := of.Site(i).allows(limit, s.Group, headroom)
		if rate > 0 && (by < 0 || rate < least) {
			by, least = j, rate
		}
	}
	return by, least + of.Site(i).unreported()
}
