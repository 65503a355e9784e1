package load

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// PlannedSource holds the published shares of one source of a service, and since when enough of
// the source's streams have acknowledged them.
type PlannedSource struct {
	Source isobar.Locality
	Shares []PlannedShare // sorted by locality; of priority 0
	// Acked is when 95% of the source's subscribed streams had acknowledged
	// the assignment that is in force; zero while they have not.
	Acked time.Time
	// Streams is how many streams of the source subscribe to the service.
	Streams int
}

// PlannedShare is the share of a source's traffic that a locality should get.
type PlannedShare struct {
	Locality isobar.Locality
	Share    float64 // 0 to 1
}

// Site describes one locality of a service for the evidence.
type Site struct {
	Locality  isobar.Locality
	Endpoints int     // all of them
	Usable    int     // those that take traffic
	Capacity  float64 // declared, of the usable ones, requests/s; 0 = not declared
	Units     float64 // weight of the usable ones; 0 = they are not used
	Given     float64 // the capacity that the plan assumes for them, requests/s

	// Of services with limits. Rates are requests/s of the usable endpoints.
	Size     float64 // the usable ones, weighted by their capacity; 0 = they are not used
	Headroom float64 // the load that may land without limits; 0 = no capacity is declared or learned
	Allowed  float64 // the load that may land by the plan in force
	Least    float64 // the load that may land whatever is reported
}

// Deviations are the differences of the observed shares of one service from its plan. All slices are
// sorted by source, then locality.
type Deviations struct {
	Service string
	// Unmanaged is load that lands beyond plan: per (source, locality),
	// requests/s to count as unmanaged load there and to take off the source's
	// steerable demand.
	Unmanaged []Landing `json:"Background"` //nolint:tagliatelle // as replicas of earlier versions call it
	// Unreported is load of clients that do not report, visible as ORCA application utilization
	// above that of the landed load: requests/s to count as unmanaged load in the locality.
	// Source is not set. Only localities with a declared capacity have it.
	Unreported []Landing
	// Barred lists the (source, locality) pairs that a source cannot reach.
	Barred []Barred
	// Unreachable lists the localities in which nearly no request succeeds from any
	// source, or that every source with a stake agrees cannot be reached: capacity
	// 0, and "dead" in explanations.
	Unreachable []isobar.Locality
	// Outages lists these localities, and those that open again, with the evidence.
	Outages []Outage
	// Opening lists the pairs that worked again recently: their share comes back in
	// parts.
	Opening []Opening
	// Rising lists the localities in which a larger part of the requests fails than before: no
	// source's share rises there.
	Rising []isobar.Locality
	// Rounds holds the observed shares of the newest windows, for each source that is compared
	// with its shares now.
	Rounds []Round
	// Deviating names sources that do not follow their shares, and the likely
	// cause, for explain.
	Deviating []Deviation
	// Individual names clients that do not follow their shares, of sources that do as a
	// whole, as far as is known; see [Adherence.Name].
	Individual []Deviation
}

func compareDeviation(d Deviation, source isobar.Locality) int { return d.Source.Compare(source) }

// Landing is a rate from a source into a locality.
type Landing struct {
	Source   isobar.Locality
	Locality isobar.Locality
	Rate     float64 // requests/s
	// Failover says that the load lands through a lower tier: the clients' own spill from a
	// locality that they can't use in full. It uses capacity where it lands, but the source still
	// wants to send it to the planned locality.
	Failover bool
}

// Barred is a pair of source and locality in which almost no planned request lands.
type Barred struct {
	Source   isobar.Locality
	Locality isobar.Locality
	Since    time.Time
	Landed   float64 // fraction of plan that landed when it was barred
}

// Deviation is a source whose observed shares differ from its plan, or some of whose
// clients' do.
type Deviation struct {
	Source isobar.Locality
	Points float64 // largest difference of a share, percent
	Cause  string  // one of the Cause constants
	// Clients are those that do not follow, the largest first, and Others counts more of
	// them; see [Adherence.Name].
	Clients []ClientDeviation
	Others  int
}

// Rules of evidence.
const (
	enoughRequests = 50.0 // expected requests that make a window evidence
	enoughProbes   = 10.0 // requests of a probe that land and make a window good
	barShare       = 0.05 // share of a source's traffic that a verdict needs at stake
	landsAtAll     = 0.20 // of plan; below it no request counts as observed
	verdictWindows = 2    // windows in a row that make or lift a verdict
	barNodes       = 2    // reporting nodes that a source needs to be barred
	staleIntervals = 6.0  // age at which an observation says nothing about now
	dropIntervals  = 24.0 // age at which a bar is dropped that nothing can lift
)

// Adherence compares landed requests with planned ones. It is owned by one goroutine; call
// Observe at every tick with the newest load.
type Adherence struct {
	interval time.Duration
	services map[string]*serviceAdherence
}

// NewAdherence returns one that has seen nothing.
func NewAdherence(settings Settings) *Adherence {
	return &Adherence{interval: settings.interval(), services: map[string]*serviceAdherence{}}
}

// SetInterval changes the report interval that clients are asked for.
func (e *Adherence) SetInterval(interval time.Duration) {
	e.interval = Settings{Interval: interval}.interval()
}

// SetSites sets the localities of a service. It is optional: without it causes are guessed less
// well, and Observe does not look for unreported load.
func (e *Adherence) SetSites(service string, sites []Site) {
	s := e.service(service)
	s.sites = slices.Clone(sites)
	slices.SortFunc(s.sites, func(a, b Site) int { return a.Locality.Compare(b.Locality) })
}

// Forget drops everything about a service that is gone.
func (e *Adherence) Forget(service string) { delete(e.services, service) }

// Services lists the services that something is kept about, sorted.
func (e *Adherence) Services() []string { return slices.Sorted(maps.Keys(e.services)) }

// Note records the planned shares of a service's sources until now. Call it for plans that
// another plan follows before the next Observe, so that reports of this time are compared with
// both. A service that was never observed is ignored.
func (e *Adherence) Note(now time.Time, service string, planned []PlannedSource) {
	se := e.services[service]
	if se == nil {
		return
	}
	for i := range planned {
		se.source(planned[i].Source).note(now, &planned[i])
	}
}

func (e *Adherence) service(name string) *serviceAdherence {
	s := e.services[name]
	if s == nil {
		s = &serviceAdherence{}
		e.services[name] = s
	}
	return s
}

// Observe takes the load of a service and the planned shares of its sources, and returns the
// deviations. planned is sorted by source. A source's reports count once every one of its fresh
// streams has a window that began after the last judged windows and after 95% of the streams had
// acknowledged some shares. Observe compares them with the range of all shares that were in force
// since, so pushes in quick succession hide no deviation.
func (e *Adherence) Observe(now time.Time, s *ServiceLoad, planned []PlannedSource) Deviations {
	se := e.service(s.Name)
	se.now, se.interval = now, e.interval
	se.keep(planned)
	for i := range planned {
		src := se.source(planned[i].Source)
		src.note(now, &planned[i])
		src.plan(now, &planned[i], scale(e.interval, dropIntervals))
		l := s.Source(planned[i].Source)
		src.nodes, src.sends, src.rate, src.round = 0, false, 0, Round{}
		if l == nil {
			continue
		}
		src.nodes, src.sends, src.rate = l.Nodes, l.Raw >= negligible, l.Raw
		if src.sends {
			src.sent = now
		}
		if src.ready(l, e.interval) {
			se.succeed(l)
			se.experience(src, l)
			if spans, ok := src.inForce(l.Since, later(l.Until, l.Last)); ok {
				se.judge(src, l, spans)
			} else {
				src.until = l.Until
			}
		}
	}
	se.decide(s)
	se.weighUnreported(s)
	return se.deviations(s)
}

// serviceAdherence is the evidence about one service.
type serviceAdherence struct {
	interval   time.Duration
	now        time.Time
	sites      []Site            // sorted by locality
	sources    []*sourceEvidence // sorted by source
	outages    []*outage         // sorted by locality
	succeeded  time.Time         // when a request was last seen to succeed
	unreported []excess          // sorted by locality
	weighed    time.Time         // when unreported load was last looked for
}

// sourceEvidence is the evidence about one source of a service.
type sourceEvidence struct {
	source      isobar.Locality
	nodes       int               // that reported freshly
	sends       bool              // anything at all
	rate        float64           // that it sends, requests/s
	sent        time.Time         // when it last did
	until       time.Time         // end of the windows that were judged
	noted       time.Time         // when the plan was last seen
	generations []shareGeneration // shares that clients may use or have used, oldest first
	pairs       []*pair           // sorted by locality
	tally       tally
	round       Round // that the newest windows closed; without requests, none

	off      int        // windows in a row with shares off plan
	points   float64    // by how much in the newest, percent
	realised []realised // in the newest
	cause    string     // that was named; empty: none
}

// pair is a source and a locality of the service.
type pair struct {
	locality isobar.Locality
	share    float64   // planned now, 0 to 1
	staked   time.Time // since when the share is at least barShare; zero = it is not
	seen     time.Time // when the share was last above 0
	told     time.Time // when observed requests were last reported

	// The open window, in requests: the least and the most planned requests, the landed requests,
	// and all requests of the source.
	planned, most, landed, total float64

	missed    float64   // planned requests since any landed
	good, bad int       // windows in a row that landed, and that did not
	judged    time.Time // when the newest of them was
	fraction  float64   // of plan that landed in it
	works     time.Time // when requests were last seen to succeed
	barred    time.Time // since when; zero = not barred
	found     float64   // fraction of plan that landed when it was barred
	trend     trend     // of requests that failed
	tried     time.Time // when trend last closed a window
	open      float64   // part of its share that it gets; read only with lifted
	lifted    time.Time // when open last changed; zero = it was not barred recently

	over, under int     // windows in a row above plan, and not
	stray       bool    // its locality was not of the service; see [sourceEvidence.stray]
	unmanaged   float64 // requests/s
	failover    bool    // lands through a lower tier
}

func (s *serviceAdherence) find(l isobar.Locality) (int, bool) {
	return slices.BinarySearchFunc(s.sources, l, func(x *sourceEvidence, l isobar.Locality) int { return x.source.Compare(l) })
}

func (s *serviceAdherence) source(l isobar.Locality) *sourceEvidence {
	i, found := s.find(l)
	if !found {
		s.sources = slices.Insert(s.sources, i, &sourceEvidence{source: l})
	}
	return s.sources[i]
}

// keep drops sources that are no longer planned.
func (s *serviceAdherence) keep(planned []PlannedSource) {
	s.sources = slices.DeleteFunc(s.sources, func(x *sourceEvidence) bool {
		_, found := slices.BinarySearchFunc(planned, x.source, func(p PlannedSource, l isobar.Locality) int { return p.Source.Compare(l) })
		return !found
	})
}

func (s *sourceEvidence) find(l isobar.Locality) *pair {
	i, found := slices.BinarySearchFunc(s.pairs, l, func(p *pair, l isobar.Locality) int { return p.locality.Compare(l) })
	if !found {
		return nil
	}
	return s.pairs[i]
}

func (s *sourceEvidence) pair(l isobar.Locality) *pair {
	i, found := slices.BinarySearchFunc(s.pairs, l, func(p *pair, l isobar.Locality) int { return p.locality.Compare(l) })
	if !found {
		s.pairs = slices.Insert(s.pairs, i, &pair{locality: l})
	}
	return s.pairs[i]
}

// Likely causes of shares that differ from plan.
const (
	CauseFailover   = "failover"                       // a planned locality does not take its share, or lower tiers are in use
	CausePanic      = "panic"                          // too few healthy endpoints: shares follow all endpoints, healthy or not
	CauseUnweighted = "no locality-weighted policy"    // shares follow the number of endpoints
	CauseZoneAware  = "zone-aware routing"             // the source's own zone gets more than planned
	CauseUnknown    = "some clients use other weights" // none of these
)

// realised is the share of a locality in a window that was off plan.
type realised struct {
	locality       isobar.Locality
	share, planned float64
}

// alike is how near shares must come to a pattern to be taken for it.
const alike = 0.05

// cause names why a source's shares are likely to be off plan. The named cause stays while it
// is among the likely ones: windows in which two patterns fit would make it alternate.
func (s *serviceAdherence) cause(src *sourceEvidence) string {
	if likely := s.causes(src); !slices.Contains(likely, src.cause) {
		src.cause = likely[0]
	}
	return src.cause
}

// causes lists the likely causes, the likeliest first; at least one.
func (s *serviceAdherence) causes(src *sourceEvidence) []string {
	var out []string
	if s.clientsFailOver(src) {
		out = append(out, CauseFailover)
	}
	all, usable := 0, 0
	for i := range s.sites {
		all += s.sites[i].Endpoints
		usable += s.sites[i].Usable
	}
	if all > 0 && usable < all && src.follows(s.sites, func(x *Site) int { return x.Endpoints }) {
		out = append(out, CausePanic)
	}
	if all > 0 && src.follows(s.sites, func(x *Site) int { return x.Usable }) {
		out = append(out, CauseUnweighted)
	}
	for _, r := range src.realised {
		if r.locality.ZoneOnly() == src.source.ZoneOnly() && r.share-r.planned > offPoints/2 {
			out = append(out, CauseZoneAware)
			break
		}
	}
	if len(out) == 0 {
		return []string{CauseUnknown}
	}
	return out
}

// clientsFailOver reports whether clients of a source leave a planned locality, or use lower
// tiers, and something is wrong with a locality that gets less than planned.
func (s *serviceAdherence) clientsFailOver(src *sourceEvidence) bool {
	leaves, impaired := false, false
	for _, r := range src.realised {
		p := src.find(r.locality)
		leaves = leaves || src.lost(r.locality) && r.planned >= barShare ||
			p != nil && p.failover && r.share-r.planned > offPoints/2
		impaired = impaired || r.share < r.planned && s.impaired(src, r.locality)
	}
	return leaves && impaired
}

// impaired reports whether anything says that a locality fails requests of a source. A
// client that never tries a locality which serves others ignores its weights; its reports
// alone look as if it failed over.
func (s *serviceAdherence) impaired(src *sourceEvidence, l isobar.Locality) bool {
	if p := src.find(l); p != nil && (!p.barred.IsZero() || s.fresh(p.tried) && p.trend.fraction > failsOver) {
		return true
	}
	for i := range s.sites {
		if x := &s.sites[i]; x.Locality == l && x.Usable < x.Endpoints {
			return true
		}
	}
	return !s.worksFor(src, l)
}

// follows reports whether the realised shares are in proportion to a count of
// endpoints.
func (s *sourceEvidence) follows(sites []Site, count func(*Site) int) bool {
	total := 0
	for i := range sites {
		total += count(&sites[i])
	}
	if total == 0 {
		return false
	}
	for i := range sites {
		want := float64(count(&sites[i])) / float64(total)
		got := 0.0
		if j := slices.IndexFunc(s.realised, func(r realised) bool { return r.locality == sites[i].Locality }); j >= 0 {
			got = s.realised[j].share
		}
		if math.Abs(got-want) > alike {
			return false
		}
	}
	return true
}

// deviations collects the deviations that hold now.
func (s *serviceAdherence) deviations(l *ServiceLoad) Deviations {
	f := Deviations{Service: l.Name}
	localities := s.localities()
	for _, src := range s.sources {
		load := l.Source(src.source)
		for _, p := range src.pairs {
			if p.unmanaged > 0 && load != nil {
				f.Unmanaged = append(f.Unmanaged, Landing{
					Source: src.source, Locality: p.locality, Rate: p.unmanaged, Failover: p.failover,
				})
			}
			if !p.barred.IsZero() {
				f.Barred = append(f.Barred, Barred{Source: src.source, Locality: p.locality, Since: p.barred, Landed: p.found})
			}
		}
		f.Opening = append(f.Opening, s.openings(src, localities)...)
		if src.round.Requests > 0 {
			f.Rounds = append(f.Rounds, src.round)
		}
		if src.off >= offWindows {
			f.Deviating = append(f.Deviating, Deviation{Source: src.source, Points: src.points, Cause: s.cause(src)})
		} else {
			src.cause = ""
		}
	}
	s.failures(&f)
	for _, e := range s.unreported {
		if e.windows > verdictWindows {
			f.Unreported = append(f.Unreported, Landing{Locality: e.locality, Rate: e.told()})
		}
	}
	return f
}
