package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Saved is the demand remembered from the plan of an earlier process.
type Saved struct {
	Service string
	Source  isobar.Locality
	Rate    float64 // requests/s
	Swing   float64 // see [SourceLoad]
	// Heard is when most of the service's demand was last heard of; zero: when
	// that process ended.
	Heard time.Time
}

// Settings of a Table and of an Evidence.
type Settings struct {
	Interval time.Duration // the report interval asked for; 0 = DefaultInterval
}

// DefaultInterval is the report interval where none is set.
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
	holdIntervals  = 3.0 // how long a stream's last rate stands in for missing reports
	graceIntervals = 3.0 // how long remembered demand stands in for clients that are not back
	freshIntervals = 1.5 // age up to which a stream's last report counts as fresh
	eagerIntervals = 2.0 // how long a new source's growth is taken as it comes
	longIntervals  = 12. // time constant of the long means for Little's law
)

// minLength keeps divisions sane; short windows are extended anyway.
const minLength = time.Millisecond

// negligible is a rate below which nothing is sent any more, requests/s.
const negligible = 1e-3

// Table keeps the load of all streams. It is owned by one goroutine: Merge
// what was reported, then take a Snapshot.
type Table struct {
	interval    time.Duration
	started     time.Time
	firstStream time.Time // when the first stream of this process counted; zero before
	firstReport time.Time
	snapshotAt  time.Time
	latest      time.Time // of all times that streams told
	merges      uint64    // so far

	streams  []*stream // sorted by id
	accounts map[string]*account
	mayCrowd bool // one of the accounts may be a crowd
	services map[string]*service
	names    []string // keys of services, sorted

	network *isobar.Network
	views   views     // memory for observe
	ratios  []float64 // the same

	spare [][]siteWindow // memory for windows; what take has replaced
}

// NewTable makes a table that remembers the demand of an earlier process.
// startedAt is when this process began to listen for reports.
func NewTable(settings Settings, saved []Saved, startedAt time.Time) *Table {
	t := &Table{interval: settings.interval(), started: startedAt, services: map[string]*service{}, accounts: map[string]*account{}}
	for _, s := range saved {
		if !(s.Rate > negligible) { // also refuses NaN
			continue
		}
		svc := t.service(s.Service)
		svc.awaiting, svc.remembered = true, true
		src := svc.source(s.Source)
		src.saved += s.Rate
		src.kept = src.saved
		src.swing.recall(s.Swing)
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

// SetNetwork tells how far localities are from each other. Unset, the latencies
// hold that are assumed where none is configured.
func (t *Table) SetNetwork(network *isobar.Network) { t.network = network }

// SetCapacity tells the capacity of a service over all localities, requests/s:
// a single client may claim 5% of it whatever it claimed before. Unset, the
// service's present demand stands in. It is kept as long as the service has
// sources.
func (t *Table) SetCapacity(service string, rate float64) {
	t.service(service).capacity = max(0, rate)
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

func (t *Table) stream(id StreamID) (*stream, bool) {
	i, found := slices.BinarySearchFunc(t.streams, id, func(s *stream, id StreamID) int { return cmp.Compare(s.id, id) })
	if !found {
		return nil, false
	}
	return t.streams[i], true
}

// Merge books what streams reported since they were last collected. The
// windows may come in any order; each stream at most once a call.
func (t *Table) Merge(windows []StreamWindow) {
	t.merges++
	windows = slices.Clone(windows)
	slices.SortStableFunc(windows, func(a, b StreamWindow) int { return cmp.Compare(a.Stream, b.Stream) })
	for i := range windows {
		t.register(&windows[i])
	}
	t.countAccounts()
	t.bookAll(windows, true)
	t.takeOver()
	t.bookAll(windows, false)
}

// bookAll books the reports of streams that are closed, or of the others. What a
// stream said before its end comes before another one takes its place, or the
// client would count twice.
func (t *Table) bookAll(windows []StreamWindow, closed bool) {
	for i := range windows {
		w := &windows[i]
		if w.Closed.IsZero() == closed {
			continue
		}
		s, _ := t.stream(w.Stream)
		for j := range w.Reports {
			t.book(s, &w.Reports[j])
		}
	}
}

// register takes note of a stream, its opening and its end.
func (t *Table) register(w *StreamWindow) {
	s, known := t.stream(w.Stream)
	if !known {
		s = &stream{id: w.Stream, node: w.Node, account: w.Account, identified: w.Identified, opened: w.Opened}
		i, _ := slices.BinarySearchFunc(t.streams, s.id, func(x *stream, id StreamID) int { return cmp.Compare(x.id, id) })
		t.streams = slices.Insert(t.streams, i, s)
	}
	if s.arrived.IsZero() {
		s.opened = later(s.opened, w.Opened)
	}
	if counted := later(w.Opened, t.started); t.firstStream.IsZero() || counted.Before(t.firstStream) {
		t.firstStream = counted
	}
	if s.closed.IsZero() {
		s.closed = w.Closed
	}
	t.latest = later(t.latest, later(w.Opened, w.Closed))
	for i := range w.Reports {
		s.heard = later(s.heard, w.Reports[i].Arrived)
	}
	t.latest = later(t.latest, s.heard)
	s.listed = t.merges
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
