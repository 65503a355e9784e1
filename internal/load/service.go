package load

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// service is a table's state of one service.
type service struct {
	name     string
	capacity float64   // over all localities, requests/s; 0 = not known
	sources  []*source // sorted by locality
	// localities are those that it has, sorted, as of the last snapshot; nil = not known.
	localities []isobar.ServiceLocality
	crowded    bool // some localities that its clients name do not count

	began      time.Time // when the first report with traffic came
	remembered bool      // demand of an earlier process is known

	known   float64 // the load of its clients with a history, as standing of a source, requests/s
	vouched float64 // the proven part of it, requests/s

	crowds   bool // some of its clients are of crowds; see findCrowds
	observed int  // localities in the newest observation
	// inProgress is the median number of requests in progress per request/s of its clients; 0
	// when none reports any.
	inProgress float64
	nodes      int     // streams that reported on it, at the last snapshot
	demand     float64 // at the last snapshot, requests/s
	failing    bool    // more requests than usual of clients with a long history fail; see seniorsFail
	awaiting   bool    // clients known from an earlier process are awaited

	outcomes outcomes // of its newest requests
	recent   recentOutcomes
	succeeds bool         // some request was seen to succeed
	futile   []SiteFutile // sorted by locality; where the newest request succeeded, none

	heldSince time.Time // since when too many of its streams are missing; zero = they are not

	doubtful bool   // some of its clients have no voice
	voices   voices // none unless doubtful

	whole, heard time.Time // when at most a fifth, and half, of its demand stood in for missing reports
}

func (s *service) find(l isobar.Locality) (int, bool) {
	return slices.BinarySearchFunc(s.sources, l, func(x *source, l isobar.Locality) int { return x.locality.Compare(l) })
}

func (s *service) source(l isobar.Locality) *source {
	i, found := s.find(l)
	if !found {
		s.sources = slices.Insert(s.sources, i, &source{service: s, locality: l})
	}
	return s.sources[i]
}

// countLocalities decides which localities count that clients of a service name: the first maxSites, and those that the
// service has. Clients may name any number of other ones: these would hide the service's own, and cost a search in
// each list.
func (s *service) countLocalities(counted map[isobar.Locality]struct{}) {
	named := 0
	for _, src := range s.sources {
		for _, f := range src.flows {
			named += len(f.window.sites)
		}
	}
	if named <= maxSites && !s.crowded { // all count, as before
		return
	}
	s.crowded = false
	defer clear(counted)
	for _, src := range s.sources {
		for _, f := range src.flows {
			for i := range f.window.sites {
				x := &f.window.sites[i]
				x.left = !s.counts(x.where(), counted)
				s.crowded = s.crowded || x.left
			}
		}
	}
}

// counts reports whether a locality counts beside those that do already.
func (s *service) counts(l isobar.Locality, counted map[isobar.Locality]struct{}) bool {
	if _, known := counted[l]; known {
		return true
	}
	if len(counted) >= maxSites {
		return s.has(l)
	}
	counted[l] = struct{}{}
	return true
}

// has reports whether the service has a locality, as far as is known.
func (s *service) has(l isobar.Locality) bool {
	_, found := slices.BinarySearchFunc(s.localities, l, func(x isobar.ServiceLocality, l isobar.Locality) int { return x.Locality.Compare(l) })
	return found
}

// Snapshot works out the load of every service as of now and moves the
// smoothed values on. Calling it again at the same time changes nothing.
func (t *Table) Snapshot(now time.Time) *Snapshot {
	wall := time.Duration(0)
	if !t.snapshotAt.IsZero() {
		wall = max(0, now.Sub(t.snapshotAt))
	}
	t.snapshotAt = later(now, t.snapshotAt)
	t.lose(now)
	out := &Snapshot{At: now}
	t.observer.now, t.observer.interval = now, t.interval
	for _, name := range t.names {
		svc := t.services[name]
		l := t.measure(svc, now, wall)
		if len(l.Sources) > 0 || len(l.Sites) > 0 {
			out.Services = append(out.Services, l)
		}
	}
	t.forget(now)
	return out
}

// measure works out one service.
func (t *Table) measure(svc *service, now time.Time, wall time.Duration) ServiceLoad {
	l := ServiceLoad{Name: svc.name}
	spec := t.spec(svc.name)
	svc.localities = nil
	if spec != nil {
		svc.localities = spec.Localities
	}
	svc.countLocalities(t.counted)
	sites := siteSums{spec: spec}
	var memory moments
	rest := others{
		comparison: comparison{service: svc, now: now, interval: t.interval},
		isService:  func(name string) bool { return t.spec(name) != nil },
	}
	rest.bound(&t.accounts)
	t.observer.findVoices(&rest.comparison)
	t.observer.judgeGauges(svc)
	l.Misled = svc.boundByGauges()
	t.observer.hear(svc)
	svc.nodes = 0
	loads := make([]SourceLoad, len(svc.sources))
	live := make([]float64, len(svc.sources)) // from open streams, requests/s
	var newest outcomes
	for i, src := range svc.sources {
		src.observeVariability(now, t.interval, wall, &memory)
		loads[i], live[i] = src.measure(wall, &sites, &rest)
		src.standIn(&loads[i], now, t.interval)
		svc.nodes += loads[i].Nodes + loads[i].Held
		newest.join(&loads[i].newest)
	}
	svc.stand(loads, wall, t.interval)
	svc.outcomes.add(&newest, t.interval)
	svc.recent.add(&newest)
	l.Outcomes, l.WorstRecent = svc.outcomes.Outcomes, svc.recent.worst()
	svc.fail(loads, wall, t.interval)
	l.Futile = slices.Clone(svc.futile)
	cover := coverage{arrivals: t.arrivals, now: now, wall: wall, interval: t.interval}
	l.Coverage, l.Covered = cover.judge(svc, loads, live)
	svc.demand = 0
	l.Stale, l.Age = svc.age(loads, now)
	l.Heard = svc.heard
	told := loads[:0] // in the same memory
	for i := range loads {
		svc.demand += loads[i].Demand
		svc.sources[i].claim(&loads[i], now, t.interval)
		if loads[i].worthTelling() {
			told = append(told, loads[i])
		}
	}
	if len(told) > 0 {
		l.Sources = told
	}
	l.Largest = svc.largest(now, t.interval)
	l.Sites = sites.list()
	l.Observations, l.LeftOut = t.observer.observe(svc)
	return l
}

// largest is the largest fraction of the service's requests that one client sends. It follows the
// long means of the clients: a burst of one client must not change the limit of all.
func (s *service) largest(now time.Time, interval time.Duration) float64 {
	sum, most := 0.0, 0.0
	for _, src := range s.sources {
		for _, f := range src.flows {
			if trust, _ := f.trust(now, interval); trust > 0 {
				sum, most = sum+f.mean, max(most, f.mean)
			}
		}
	}
	if sum < negligible {
		return 0
	}
	return most / sum
}

func (l *SourceLoad) worthTelling() bool {
	return l.Demand >= negligible || l.Saved > 0 || l.Nodes > 0 || l.Held > 0
}

// count adds a window, of which a part of the given weight counts.
func (l *SourceLoad) count(w *window, weight float64) {
	l.Raw += w.rate() * weight
	l.Drop += w.dropped * weight
	for _, d := range w.drops {
		l.Drops = addDrop(l.Drops, CategoryDrop{Category: d.Category, Rate: d.Rate * weight})
	}
	l.Errors += w.errors * weight
	l.Newest = later(l.Newest, w.until)
}

// hold counts a stream whose last rate is used instead of a report.
func (l *SourceLoad) hold(rate float64, missing bool) {
	l.Held++
	if missing {
		l.Stale += rate
	}
}

// land adds a fresh window to the source's landed load, most likely in as many localities as
// before.
func (l *SourceLoad) land(f *flow, before int) {
	w, weight := &f.window, f.weight
	if l.Since.IsZero() || w.since.Before(l.Since) {
		l.Since = w.since
	}
	if l.Until.IsZero() || w.until.Before(l.Until) {
		l.Until = w.until
	}
	l.Last = later(l.Last, w.until)
	for i := range w.sites {
		s := &w.sites[i]
		if s.left {
			continue
		}
		where := s.where()
		j, found := slices.BinarySearchFunc(l.Landed, where, func(x LandedLoad, l isobar.Locality) int { return x.Locality.Compare(l) })
		if !found {
			if l.Landed == nil {
				l.Landed = make([]LandedLoad, 0, before)
			}
			l.Landed = slices.Insert(l.Landed, j, LandedLoad{Locality: where})
		}
		x := &l.Landed[j]
		x.Issued += s.issued * weight
		x.Errors += s.errors * weight
		x.Succeeded += s.succeeded * weight
		x.Abandoned += s.abandoned * weight
		if !f.quiet {
			x.known += s.issued * weight
		}
		x.Doubted += f.source.service.voices.doubted(f, s) * weight
		x.Waiting += s.inProgress * weight
		x.InProgress = x.Waiting // until the mean takes its place
		x.Priority = max(x.Priority, uint32(s.priority))
	}
}

// standing is the load of the clients of a service with a history, requests/s.
func (s *service) standing() float64 {
	sum := 0.0
	for _, src := range s.sources {
		sum += max(src.standing, src.saved)
	}
	return sum
}

// questionable reports whether the service has a client that is new or needs others to confirm
// it.
func (s *service) questionable() bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool {
		return slices.ContainsFunc(src.flows, func(f *flow) bool {
			return f.limit > 0 || (f.busy > 0 && f.met < guardWindows)
		})
	})
}

// Age is for how long too much of an input of decisions, such as load reports or verdicts,
// has been missing; zero while it is not.
type Age struct {
	Some time.Duration // more than a fifth of it is
	Most time.Duration // more than half of it is
}

// Shares of the demand from which on an Age counts.
const (
	someShare = 0.2
	mostShare = 0.5
)

// age returns the part of a service's demand that is taken from earlier reports, and for how long
// too much of it is stale.
func (s *service) age(loads []SourceLoad, now time.Time) (stale float64, age Age) {
	all := 0.0
	for i := range loads {
		l := &loads[i]
		stale += l.Stale
		all += max(l.Raw, l.fresh+l.Stale)
	}
	if all < negligible {
		stale, all = 0, 1
	}
	stale = min(1, stale/all)
	if stale <= someShare || s.whole.IsZero() {
		s.whole = now
	}
	if stale <= mostShare || s.heard.IsZero() {
		s.heard = now
	}
	return stale, Age{Some: max(0, now.Sub(s.whole)), Most: max(0, now.Sub(s.heard))}
}

// stand is [source.stand] for all sources together: clients elsewhere take over in a failover.
func (s *service) stand(loads []SourceLoad, wall, interval time.Duration) {
	raw, known, proven := 0.0, 0.0, 0.0
	for i, src := range s.sources {
		raw, known, proven = raw+loads[i].Raw, known+src.known, proven+src.knownProven
	}
	fade := math.Exp(-wall.Seconds() / (replacedTimes * interval.Seconds()))
	s.known = max(known, fade*s.known, min(s.known, raw))
	s.vouched = max(proven, fade*s.vouched, min(s.vouched, raw))
}
