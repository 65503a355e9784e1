package plan

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/capacity"
	"github.com/isobar-xds/isobar/internal/load"
)

// ObservedCapacity is what the requests to one locality of a service tell about
// its capacity. Capacities are requests/s of one unit of endpoint weight, so that
// endpoints may come and go; other rates are requests/s of all of them.
type ObservedCapacity struct {
	Locality isobar.Locality   `json:"locality"`
	At       time.Time         `json:"at"`    // of the newest window that was used
	Since    time.Time         `json:"since"` // time since which there is an interval, or none
	Declared float64           `json:"declared,omitempty"`
	Usual    float64           `json:"usual,omitempty"` // what a unit is assumed to serve where nothing is declared
	Estimate capacity.Estimate `json:"estimate"`
	// Losing is the part of one more request/s that fails, or makes others fail, smoothed: it
	// depends on the load that it moves.
	Losing float64 `json:"losing,omitempty"`
	// InUse is what plans go by with capacity_trust: observed; 0 = nothing is.
	InUse float64 `json:"in_use,omitempty"`

	Rate       float64 `json:"rate"`        // in the newest window
	InProgress float64 `json:"in_progress"` // requests at the servers in it
	Expected   float64 `json:"expected"`    // the same, were the declared capacity right; 0 = none is declared
	Failing    float64 `json:"failing"`     // part of the requests that failed in it

	Evidence capacity.Saved `json:"evidence"` // for the next process; a few windows old
}

// valid reports whether saved knowledge makes sense.
func (o *ObservedCapacity) valid() bool {
	for _, v := range [...]float64{o.Declared, o.Usual, o.Losing, o.InUse, o.Rate, o.InProgress, o.Expected, o.Failing} {
		if !(v >= 0 && v < 1e12) {
			return false
		}
	}
	return o.Estimate.Valid() && o.Evidence.Valid()
}

// validObserved returns those that make sense, sorted by locality, each locality
// once: what was saved may be damaged.
func validObserved(known []ObservedCapacity) []ObservedCapacity {
	out := slices.DeleteFunc(slices.Clone(known), func(o ObservedCapacity) bool { return !o.valid() })
	slices.SortStableFunc(out, func(a, b ObservedCapacity) int { return a.Locality.Compare(b.Locality) })
	return slices.CompactFunc(out, func(a, b ObservedCapacity) bool { return a.Locality == b.Locality })
}

// Rules of what is made of observations.
const (
	trustedWidth    = 2.0  // factor by which declarations are usually wrong at most
	assumedWidth    = 4.0  // the same of capacities that nobody declared
	assumedSpare    = 2.5  // what a locality is assumed to serve at first, of what it gets
	slowerPart      = 0.02 // of its way that the usual service time grows in a window
	mostFailing     = 0.5  // part of the requests that fail, from which on their time says nothing
	leastService    = 1e-5 // seconds
	saveWindows     = 6    // windows between two copies of the evidence
	raiseStep       = 0.05 // by which what is in use grows in a window at most
	lowerStep       = 0.15 // by which it falls
	declaredBand    = 1.12 // factor within which an estimate confirms the declaration
	medianBand      = 1.15 // factor from the median of an estimate up to which it confirms the declaration
	inUseBand       = 1.04 // factor within which it confirms what is in use: assignments stand still
	steadyPart      = 0.2  // by which the rate may differ from that of the window before
	drainedPart     = 0.75 // of the requests in progress a window before, below which queues are running empty
	waitMemory      = 0.94 // of what was counted before, with each window
	enoughHeld      = 8.0  // requests in progress, a sum over windows, from which on they tell a service time
	skipAfter       = 12   // windows from which on a locality may be calm
	skipUtilization = 0.7  // of its capacity, below which it is
	skipCapacity    = 0.9  // of what is declared: what is in use below it is on its way somewhere
	losingBand      = 1.1  // factor within which an estimate confirms what one more request loses
	losingWeight    = 0.2  // of a window in what one more request loses
	mostMisled      = 0.2  // part of all requests that turn out to be a lie, from which on what they told is forgotten
	observedLimit   = 64   // windows in a row without a report after which what is known is dropped
)

// experience is what the decider knows of what requests experience. It is owned
// by the decider.
type experience struct {
	services map[string]*serviceExperience
}

type serviceExperience struct {
	service float64 // usual service time, seconds; 0 = not known yet
	sites   []*siteExperience
}

type siteExperience struct {
	ObservedCapacity

	model   *capacity.Model
	held    float64 // requests at the server, a sum over windows that forgets
	sent    float64 // requests/s, the same
	alone   float64 // probability that its servers refuse what is too much, by its own requests
	windows int
	idleAt  time.Time // when time passed without requests
}

func newExperience() *experience { return &experience{services: map[string]*serviceExperience{}} }

// retain drops everything about services for which keep tells false.
func (x *experience) retain(keep func(service string) bool) {
	for name := range x.services { //isobar:sorted each is kept or dropped for itself
		if !keep(name) {
			delete(x.services, name)
		}
	}
}

// adopt takes over what an earlier process knew, unless something is known of the
// service.
func (x *experience) adopt(service string, known []ObservedCapacity) *serviceExperience {
	s := x.services[service]
	if s != nil {
		return s
	}
	s = &serviceExperience{}
	x.services[service] = s
	for _, k := range validObserved(known) {
		if m, ok := capacity.Restore(&k.Evidence); ok {
			if s.service <= 0 || k.Evidence.Service < s.service {
				s.service = k.Evidence.Service
			}
			s.sites = append(s.sites, &siteExperience{ObservedCapacity: k, model: m})
		}
	}
	return s
}

// find returns the place of a locality, and whether something is known of it.
func (s *serviceExperience) find(l isobar.Locality) (int, bool) {
	return slices.BinarySearchFunc(s.sites, l, func(x *siteExperience, l isobar.Locality) int { return x.Locality.Compare(l) })
}

func (s *serviceExperience) site(l isobar.Locality) *siteExperience {
	i, found := s.find(l)
	if !found {
		s.sites = slices.Insert(s.sites, i, &siteExperience{ObservedCapacity: ObservedCapacity{Locality: l}, model: &capacity.Model{}})
	}
	return s.sites[i]
}

// observe takes one round of windows of a service, and tells what is known,
// sorted by locality. It reads at most one window an interval.
func (x *experience) observe(now time.Time, interval time.Duration, l *load.ServiceLoad, before *Service) []ObservedCapacity {
	s := x.adopt(l.Name, before.Observed)
	if interval <= 0 {
		interval = load.DefaultInterval
	}
	if l.Misled > mostMisled {
		for _, k := range s.sites {
			*k.model = capacity.Model{}
		}
	}
	if l.Covered {
		s.typical(before, l)
	}
	if l.Covered && s.service > 0 {
		for i := range before.Sites {
			s.window(now, interval, l, before, i)
		}
		s.together()
	}
	s.sites = slices.DeleteFunc(s.sites, func(k *siteExperience) bool {
		return before.siteIndex(k.Locality) < 0 || !k.At.IsZero() && now.Sub(k.At) > observedLimit*interval
	})
	out := make([]ObservedCapacity, 0, len(s.sites))
	for _, k := range s.sites {
		if k.Estimate.Median > 0 {
			out = append(out, k.ObservedCapacity)
		}
	}
	return out
}

// together gives all localities without a declaration a capacity to plan with once one
// has some: beside a locality with a queue, one without would look free.
func (s *serviceExperience) together() {
	if !slices.ContainsFunc(s.sites, func(k *siteExperience) bool { return k.InUse > 0 }) {
		return
	}
	for _, k := range s.sites {
		if k.InUse <= 0 && k.windows > 0 {
			k.InUse = k.Estimate.Safe
		}
	}
}

// typical follows the usual service time: the time at the server in the localities
// that are faster than three quarters. It falls at once and grows slowly, for what
// makes requests wait is load.
func (s *serviceExperience) typical(before *Service, l *load.ServiceLoad) {
	var waits []float64
	for i := range l.Observations {
		o := &l.Observations[i]
		if o.Sampled <= 0 || o.Failing() > mostFailing || before.siteIndex(o.Locality) < 0 {
			continue
		}
		site := s.site(o.Locality)
		site.held = site.held*waitMemory + o.InProgress - o.Network
		site.sent = site.sent*waitMemory + o.Sampled
		if site.held >= enoughHeld { // a few requests more or less are chance
			waits = append(waits, (site.held+math.Sqrt(site.held))/site.sent)
		}
	}
	if ms := before.Spec.ServiceTimeMS; ms > 0 {
		s.service = ms / 1000
		return
	}
	if len(waits) == 0 {
		return
	}
	slices.Sort(waits)
	fast := max(leastService, waits[(len(waits)-1)/4])
	if s.service <= 0 || fast < s.service {
		s.service = fast
		return
	}
	s.service += (fast - s.service) * slowerPart
}

// window takes one window of one locality.
func (s *serviceExperience) window(now time.Time, interval time.Duration, l *load.ServiceLoad, before *Service, i int) {
	locality := before.Sites[i].Group.Locality
	o := l.Observation(locality)
	units := before.Site(i).units()
	if units <= 0 {
		return
	}
	if o == nil || o.Rate <= 0 {
		s.idle(now, interval, locality)
		return
	}
	k := s.site(locality)
	if now.Sub(k.At) < interval*9/10 || k.skips(now, interval, o, units) {
		return
	}
	utilization := 0.0
	if j, found := slices.BinarySearchFunc(l.Sites, locality, func(x load.SiteLoad, l isobar.Locality) int { return x.Locality.Compare(l) }); found {
		utilization = l.Sites[j].Utilization
	}
	if o.Sampled <= 0 && utilization <= 0 {
		return
	}
	declared := before.Site(i).declared() / orDefault(before.Spec.Localities[i].CapacityScaler, 1)
	hidden := before.Site(i).unreported() // it takes a part of the capacity, too
	rate := o.Rate + hidden
	w := capacity.Window{
		Rate: rate, Sampled: o.Sampled, InProgress: o.InProgress, Network: o.Network, Goodput: o.Goodput * rate / o.Rate,
		Failing: o.Failing(), Utilization: utilization, Seconds: interval.Seconds(), Units: units, Timeout: before.Spec.RequestTimeout.Duration().Seconds(),
		Queues: float64(before.Sites[i].Group.Usable()), Varies: varies(l, locality),
	}
	if before := k.Rate; k.windows > 0 && math.Abs(rate-before) > steadyPart*max(rate, before) {
		// Requests in progress are counted at the end of a window, and its rate is a
		// mean: where that changes they don't belong together.
		w.Sampled = 0
	}
	if n := o.AtServer(); n < drainedPart*k.InProgress && n > 2*o.Sampled*s.service {
		w.Sampled = 0 // what is left of an overload, and no queue of this rate
	}
	k.Declared = declared / units
	k.Usual = max(assumedSpare*rate/units, k.Usual*(1-slowerPart))
	prior := s.prior(k)
	switch k.model.Observe(&w, &prior) {
	case capacity.Taken:
		k.take(now, &w, &prior)
		k.Expected = capacity.Expected(rate, declared, k.Estimate.Service, w.Queues) * o.Sampled / rate
		k.InProgress = o.AtServer()
	case capacity.Hung:
		k.updateEstimate(&prior) // what is in use returns step by step to what it was before
	case capacity.Skipped:
		s.idle(now, interval, locality)
	}
}

// idle lets time pass in a locality to which next to nothing is sent, where something
// that is known keeps requests away.
func (s *serviceExperience) idle(now time.Time, interval time.Duration, locality isobar.Locality) {
	i, found := s.find(locality)
	if !found {
		return
	}
	k := s.sites[i]
	if k.windows == 0 || k.Losing <= leastError || now.Sub(k.At) < interval*9/10 || now.Sub(k.idleAt) < interval*9/10 {
		return
	}
	k.idleAt = now
	prior := s.prior(k)
	k.model.Idle(&prior)
	k.updateEstimate(&prior)
}

// varies is the standard deviation of the rate in a locality within windows, as a
// part of it, by how far the demand of its sources varies.
func varies(l *load.ServiceLoad, locality isobar.Locality) float64 {
	var square, all float64
	for i := range l.Sources {
		src := &l.Sources[i]
		for j := range src.Landed {
			if x := &src.Landed[j]; x.Locality == locality {
				all += x.Issued
				square += x.Issued * x.Issued * src.Variability * src.Variability
			}
		}
	}
	if square <= 0 || all <= 0 {
		return 0
	}
	return math.Sqrt(square) / all
}

// skips reports whether one window of four suffices for a locality, because it has much
// headroom: windows there say little, and most localities are in this state.
func (k *siteExperience) skips(now time.Time, interval time.Duration, o *load.Observation, units float64) bool {
	return k.windows >= skipAfter && k.InUse >= skipCapacity*k.Declared && o.Rate/units < skipUtilization*k.Estimate.Safe && o.Failing() < 0.01 &&
		o.AtServer() < 2*k.InProgress+3*math.Sqrt(k.InProgress)+1 && now.Sub(k.At) < interval*(4*10-1)/10
}

// prior is what is believed of a locality without evidence: its declaration, or
// what the service's other localities serve, or some more than it gets.
func (s *serviceExperience) prior(k *siteExperience) capacity.Prior {
	p := capacity.Prior{PerUnit: k.Declared, Width: trustedWidth, Service: s.service, Shedding: s.shedding(k)}
	if p.PerUnit > 0 {
		return p
	}
	p.PerUnit, p.Width, p.Assumed = k.Usual, assumedWidth, true
	var others []float64
	for _, x := range s.sites {
		switch {
		case x == k:
		case x.Estimate.Known:
			others = append(others, x.Estimate.Median)
		case x.Declared > 0 && x.InUse > 0:
			others = append(others, x.InUse)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		p.PerUnit = others[(len(others)-1)/2]
	}
	return p
}

// shedding is the probability that the servers of a locality refuse what is too much, by
// what is known of the service's other localities.
func (s *serviceExperience) shedding(k *siteExperience) float64 {
	odds := 0.0
	for _, x := range s.sites {
		if x != k && x.windows > 0 {
			odds += math.Log(max(1e-3, x.alone)) - math.Log(max(1e-3, 1-x.alone))
		}
	}
	return 1 / (1 + math.Exp(-odds))
}

// apart takes what others know off a probability.
func apart(all, others float64) float64 {
	others = min(0.97, max(0.03, others))
	odds := max(1e-4, all) / max(1e-4, 1-all) * (1 - others) / others
	return odds / (1 + odds)
}

// take brings what is known up to date after a window.
func (k *siteExperience) take(now time.Time, w *capacity.Window, prior *capacity.Prior) {
	known := k.Estimate.Known
	k.At, k.Rate, k.Failing = now, w.Rate, w.Failing
	k.updateEstimate(prior)
	if k.windows%saveWindows == 0 {
		k.Evidence = k.model.Save(prior, &k.Estimate)
	}
	k.windows++
	if known != k.Estimate.Known || k.Since.IsZero() {
		k.Since = now
	}
}

// updateEstimate derives the estimate from the model again.
func (k *siteExperience) updateEstimate(prior *capacity.Prior) {
	k.Estimate = k.model.Estimate(prior)
	k.alone = apart(k.Estimate.Shedding, prior.Shedding)
	if !alike(k.Estimate.Another, k.Losing, losingBand) {
		k.Losing += (k.Estimate.Another - k.Losing) * losingWeight
	}
	k.follow()
}

// alike reports whether two values differ by a factor at most.
func alike(a, b, factor float64) bool { return a <= b*factor && b <= a*factor }

// confirmed reports whether the estimate is so near to what is declared that it tells
// nothing better.
func (k *siteExperience) confirmed() bool {
	e := &k.Estimate
	return k.Declared > 0 && (alike(e.Plan, k.Declared, declaredBand) || e.Safe <= k.Declared && k.Declared <= medianBand*e.Median)
}

// follow moves what is in use towards the estimate. Where nothing is declared
// nothing is in use before an interval is told.
func (k *siteExperience) follow() {
	to := k.Estimate.Plan
	switch {
	case k.confirmed():
		to = k.Declared
	case k.InUse > 0 && alike(to, k.InUse, inUseBand):
		return
	}
	switch {
	case to <= 0:
	case k.InUse > 0:
		k.InUse *= max(1-lowerStep, min(1+raiseStep, to/k.InUse))
	case k.Declared > 0:
		k.InUse = k.Declared
	case k.Estimate.Known:
		k.InUse = to
	}
	if math.IsNaN(k.InUse) || math.IsInf(k.InUse, 0) {
		k.InUse = 0
	}
}
