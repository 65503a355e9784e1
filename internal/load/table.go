package load

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Saved is the demand remembered from the plan of an earlier process.
type Saved struct {
	Service string
	Source  isobar.Locality
	Rate    float64 // requests/s
	// Unproven is the part of Rate that raises no drop, requests/s; see [SourceLoad].
	Unproven    float64
	Variability float64 // see [SourceLoad]
	// Heard is when most of the service's demand was last heard of; zero: when
	// that process ended.
	Heard time.Time
}

// Subscription says that clients in Source subscribe to the assignment of Service,
// whether they report load or not.
type Subscription struct {
	Service string
	Source  isobar.Locality
	Streams int // that subscribe
	Acked   int // of them, those that acknowledged the published assignment
	// AckedAt is when 95% of the streams had acknowledged the published
	// assignment; zero while they have not. Publishing the same content again, or
	// other resources, leaves it.
	AckedAt time.Time
}

// Settings of a Table and of an Adherence.
type Settings struct {
	Interval time.Duration // the report interval asked for; 0 = DefaultInterval
	Memory   int           // of a Table; see [Table.SetMemory]
}

// DefaultInterval is the report interval if none is set.
const DefaultInterval = 5 * time.Second

func (s Settings) interval() time.Duration {
	if s.Interval <= 0 {
		return DefaultInterval
	}
	return s.Interval
}

// Time constants, in report intervals.
const (
	riseIntervals  = 1.0 // smoothing of growing demand
	fallIntervals  = 1.5 // smoothing of shrinking demand
	holdIntervals  = 3.0 // how long a stream's last rate is used instead of missing reports
	graceIntervals = 3.0 // how long remembered demand is used for clients that are not back
	freshIntervals = 1.5 // age up to which a stream's last report counts as fresh, without its delay
	eagerIntervals = 2.0 // how long a new source's growth is taken as it comes
	longIntervals  = 12. // time constant of the long means for Little's law
)

// minLength keeps divisions sane; short windows are extended anyway.
const minLength = time.Millisecond

// negligible is a rate below which nothing is sent any more, requests/s.
const negligible = 1e-3

// Table keeps the load of all streams. It is owned by one goroutine: Merge the collected reports,
// then take a Snapshot.
type Table struct {
	interval   time.Duration
	arrivals   arrivals
	snapshotAt time.Time
	latest     time.Time // of all times that streams told
	merges     uint64    // so far

	streams  []*stream // sorted by id
	accounts accounts
	services map[string]*service
	names    []string // keys of services, sorted

	topology *isobar.Topology // nil = not known
	observer observer
	memory   memory
	counted  map[isobar.Locality]struct{} // memory for countLocalities

	spare [][]siteWindow // memory for windows that take has replaced
}

// NewTable makes a table that remembers the demand of an earlier process.
// startedAt is when this process began to listen for reports.
func NewTable(settings Settings, saved []Saved, startedAt time.Time) *Table {
	t := &Table{
		interval: settings.interval(), arrivals: arrivals{started: startedAt},
		services: map[string]*service{}, accounts: accounts{all: map[string]*account{}}, memory: memory{of: map[string]int{}},
		counted: map[isobar.Locality]struct{}{},
	}
	t.SetMemory(settings.Memory)
	for _, s := range saved {
		if !(s.Rate > negligible) { // also refuses NaN
			continue
		}
		svc := t.service(s.Service)
		svc.awaiting, svc.remembered = true, true
		src := svc.source(s.Source)
		src.remember(s.Rate, min(max(0, s.Unproven), s.Rate))
		src.variability.recall(s.Variability)
		if heard := s.Heard; !heard.IsZero() && heard.Before(startedAt) && (svc.heard.IsZero() || heard.Before(svc.heard)) {
			svc.whole, svc.heard = heard, heard
		}
	}
	return t
}

// SetInterval changes the report interval that clients are asked for.
func (t *Table) SetInterval(interval time.Duration) {
	t.interval = Settings{Interval: interval}.interval()
}

// SetMemory sets how much memory the load of all clients may use, in bytes; 0 = DefaultMemory.
func (t *Table) SetMemory(bytes int) {
	if bytes <= 0 {
		bytes = DefaultMemory
	}
	t.memory.most = bytes
}

// Memory returns how much memory the table uses.
func (t *Table) Memory() Memory {
	m := &t.memory
	out := Memory{Used: m.used, Most: m.most, MostOfOne: m.most / accountMemory, Refused: m.refused}
	for _, n := range m.of { //isobar:sorted the largest is the same in any order
		out.Fullest = max(out.Fullest, n)
	}
	return out
}

// SetTopology sets the distances between localities, and the localities, endpoints and metrics that services have: those count
// however many other ones clients name. Unset, the table uses the default latencies, and knows no locality.
func (t *Table) SetTopology(topology *isobar.Topology) {
	t.topology, t.observer.network = topology, topology.Network
}

// SetCapacity tells the capacity of a service over all localities, requests/s:
// a single client may claim 5% of it whatever it claimed before. Unset, the
// service's present demand stands in. It is kept as long as the service has
// sources.
func (t *Table) SetCapacity(service string, rate float64) {
	t.service(service).capacity = max(0, rate)
}

// SetSubscribed sets the sources that have clients connected now. A missing report of such a
// source says nothing: its last load stands in while the clients are connected.
func (t *Table) SetSubscribed(list []Subscription, now time.Time) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Subscription) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Source.Compare(b.Source))
	})
	for _, name := range t.names {
		i, _ := slices.BinarySearchFunc(list, name, func(x Subscription, n string) int { return strings.Compare(x.Service, n) })
		sources := t.services[name].sources
		for ; i < len(list) && list[i].Service == name; i++ {
			j, found := slices.BinarySearchFunc(sources, list[i].Source, func(s *source, l isobar.Locality) int { return s.locality.Compare(l) })
			if found {
				sources[j].watched = now
			}
		}
	}
}

// spec returns the configuration of a service; nil = not known.
func (t *Table) spec(service string) *isobar.Service {
	if t.topology == nil {
		return nil
	}
	s, _ := t.topology.Service(service)
	return s
}

func (t *Table) service(name string) *service {
	s := t.services[name]
	if s == nil {
		s = &service{name: name}
		t.services[name] = s
		i, _ := slices.BinarySearch(t.names, name)
		t.names = slices.Insert(t.names, i, name)
	}
	return s
}

// Merge adds the reports of streams since the last collection. The windows may come in any order;
// each stream at most once a call.
func (t *Table) Merge(windows []StreamWindow) {
	t.merges++
	windows = slices.Clone(windows)
	slices.SortStableFunc(windows, func(a, b StreamWindow) int { return cmp.Compare(a.Stream, b.Stream) })
	for i := range windows {
		t.register(&windows[i])
	}
	t.accounts.count(t.streams)
	t.memory.weigh(t)
	t.addReports(windows, true)
	t.takeOver()
	t.addReports(windows, false)
}

// addReports adds the reports of streams that are closed, or of the others. What a
// stream said before its end comes before another one takes its place, or the
// client would count twice.
func (t *Table) addReports(windows []StreamWindow, closed bool) {
	for i := range windows {
		w := &windows[i]
		if w.Closed.IsZero() == closed {
			continue
		}
		s, _ := t.stream(w.Stream)
		for j := range w.Reports {
			t.addReport(s, &w.Reports[j])
		}
	}
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
