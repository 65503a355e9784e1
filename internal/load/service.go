package load

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// service is what a table knows of one service.
type service struct {
	name     string
	capacity float64   // over all localities, requests/s; 0 = not known
	sources  []*source // sorted by locality

	began      time.Time // when the first report came
	remembered bool      // demand of an earlier process is known

	crowds   bool // some of its clients are of crowds; see findCrowds
	observed int  // localities in the newest observation
	// inProgress is the median number of requests in progress per request/s of its clients;
	// 0 when none tells of any.
	inProgress float64
	nodes      int     // streams that told of it, at the last snapshot
	demand     float64 // at the last snapshot, requests/s
	awaiting   bool    // clients known from an earlier process are awaited

	outcomes outcomes // of its newest requests
	lately   lately

	heldSince time.Time // since when too many of its streams are missing; zero = they are not

	whole, heard time.Time // when at most a fifth, and half, of its demand stood in for missing reports
}

func (s *service) source(l isobar.Locality) *source {
	i, found := slices.BinarySearchFunc(s.sources, l, func(x *source, l isobar.Locality) int { return x.locality.Compare(l) })
	if !found {
		s.sources = slices.Insert(s.sources, i, &source{service: s, locality: l})
	}
	return s.sources[i]
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
	var sites siteSums
	var memory moments
	t.compareClients(svc, now)
	t.judgeGauges(svc, now)
	l.Misled = svc.boundByGauges()
	rest := others{table: t, service: svc, now: now}
	svc.nodes = 0
	loads := make([]SourceLoad, len(svc.sources))
	live := make([]float64, len(svc.sources)) // from open streams, requests/s
	var newest outcomes
	for i, src := range svc.sources {
		src.swings(now, t.interval, wall, &memory)
		loads[i], live[i] = t.measureSource(src, now, wall, &sites, &rest)
		t.standIn(src, &loads[i], now)
		svc.nodes += loads[i].Nodes + loads[i].Held
		newest.join(&loads[i].newest)
	}
	svc.outcomes.add(&newest, t.interval)
	svc.lately.add(&newest)
	l.Outcomes, l.Lately = svc.outcomes.Outcomes, svc.lately.worst()
	l.Coverage, l.Covered = t.cover(svc, loads, live, now, wall)
	svc.demand = 0
	l.Stale, l.Age = svc.age(loads, now)
	l.Heard = svc.heard
	told := loads[:0] // in the same memory
	for i := range loads {
		svc.demand += loads[i].Demand
		if loads[i].worthTelling() {
			told = append(told, loads[i])
		}
	}
	if len(told) > 0 {
		l.Sources = told
	}
	l.Largest = t.largest(svc, now)
	l.Sites = sites.list()
	l.Observations, l.LeftOut = t.observe(svc, now)
	return l
}

// largest is the largest fraction of the service's requests that one client sends.
// It follows the long means of the clients: a burst of one client is no reason to
// change what all may do.
func (t *Table) largest(svc *service, now time.Time) float64 {
	sum, most := 0.0, 0.0
	for _, src := range svc.sources {
		for _, f := range src.flows {
			if trust, _ := f.trust(now, t.interval); trust > 0 {
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

// measureSource sums a source over its streams, then smooths the sum.
func (t *Table) measureSource(src *source, now time.Time, wall time.Duration, sites *siteSums, rest *others) (l SourceLoad, live float64) {
	l.Source = src.locality
	var news, windows time.Duration
	fading, counted, landing, unproven := false, 0, 0, 0.0
	longest := src.longestWindow(now, t.interval)
	for _, f := range src.flows {
		trust, fresh := f.trust(now, t.interval)
		fading = fading || trust < 1
		news += min(f.news, scale(t.interval, holdIntervals))
		f.news = 0
		if trust == 0 {
			continue
		}
		counted++
		weight := trust * f.weight
		rate := f.window.rate() * weight
		l.Raw += rate
		unproven += trust * rest.unproven(f)
		l.Drop += f.window.dropped * weight
		for _, d := range f.window.drops {
			l.Drops = addDrop(l.Drops, CategoryDrop{Category: d.Category, Rate: d.Rate * weight})
		}
		l.Errors += f.window.errors * weight
		l.Clients = addClient(l.Clients, f.stream.node.Cluster, rate)
		sites.add(&f.window, weight)
		if f.weight < 1 {
			l.Capped++
		}
		if f.stream.closed.IsZero() {
			live += rate
		}
		if !fresh {
			l.hold(rate, f.missing(now, t.interval))
			continue
		}
		l.Nodes++
		l.fresh += rate
		if f.window.length <= longest {
			windows += f.window.length
			landing++
			l.land(&f.window, f.weight, len(src.means))
		}
	}
	if counted > 0 {
		news /= time.Duration(counted)
	}
	if landing > 0 {
		l.Window = windows / time.Duration(landing)
	}
	t.stand(src, l.Raw, now, wall)
	src.follow(l.Raw, l.Errors, l.Drop, news, wall, t.interval, now, fading || len(src.flows) == 0)
	l.Demand, l.Swing = src.demand, src.swing.seen
	l.Unproven = src.prove(l.Demand, l.Raw, unproven, l.Errors, wall, t.interval)
	src.learn(l.Landed, news, t.interval)
	l.newest.count(l.Landed, news)
	for i := range l.Landed {
		m := src.mean(l.Landed[i].Locality)
		l.Landed[i].InProgress, l.Landed[i].MeanIssued = m.inProgress, m.issued
	}
	return l, live
}

// hold counts a stream whose last rate stands in for a report.
func (l *SourceLoad) hold(rate float64, missing bool) {
	l.Held++
	if missing {
		l.Stale += rate
	}
}

// land adds a fresh window to what the source lands, most likely in as many
// localities as before.
func (l *SourceLoad) land(w *window, weight float64, before int) {
	if l.Since.IsZero() || w.since.Before(l.Since) {
		l.Since = w.since
	}
	if l.Until.IsZero() || w.until.Before(l.Until) {
		l.Until = w.until
	}
	l.Last = later(l.Last, w.until)
	for i := range w.sites {
		s := &w.sites[i]
		where := s.where()
		j, found := slices.BinarySearchFunc(l.Landed, where, func(x LandedLoad, l isobar.Locality) int { return x.Locality.Compare(l) })
		if !found && len(l.Landed) >= maxSites {
			continue
		}
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
		x.Waiting += s.inProgress * weight
		x.InProgress = x.Waiting // until the mean takes its place
		x.Priority = max(x.Priority, uint32(s.priority))
	}
}

// standing is what the clients of a service with a history send, requests/s.
func (s *service) standing() float64 {
	sum := 0.0
	for _, src := range s.sources {
		sum += max(src.standing, src.saved)
	}
	return sum
}

// questionable reports whether there is anybody to be vouched for, or new.
func (s *service) questionable() bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool {
		return slices.ContainsFunc(src.flows, func(f *flow) bool {
			return f.limit > 0 || (f.busy > 0 && f.met < guardWindows)
		})
	})
}
