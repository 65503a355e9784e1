package load

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// flow is the load of one stream to one service: its newest window, as rates, and the state that
// judging the next one needs.
type flow struct {
	stream *stream
	source *source

	window   window
	told     time.Time     // when the service was last heard of; of an inherited flow, when its new stream opened
	news     time.Duration // length of the windows that came since the last snapshot
	own      bool          // the window was reported on this stream, not inherited
	extended bool          // it was too short, and is prolonged by the one before
	habits   uint8         // windows that usual was made of, up to usualWindows
	judged   uint8         // the window that was held against the shares last; see judgeClients
	off      uint8         // windows in a row that were off them, up to offWindows
	points   uint8         // by how much the last one was, percent
	bytes    int           // that it counts with; see memory
	weight   float64       // how much of the window counts; below 1 for streams that are doubted (see judge)
	windows  int           // so far
	busy     int           // of them, those with traffic
	met      int           // snapshots at which it was compared with the other nodes
	mean     float64       // of the accepted rates while there was traffic, requests/s
	began    time.Time     // when its first window with traffic came
	stranger bool          // it is doubted since it came, by comparison with the others
	let      float64       // what counted when it was last compared as a newcomer or stranger, requests/s
	proof    float64       // of the counted load, the part that raises drops, requests/s; see prove
	compared bool          // it came when others had a history: its proof grows slowly
	admitted float64       // its proven demand as a newcomer, requests/s
	replaces float64       // of its load then, what others had proven in whose place it came, requests/s
	quiet    bool          // it has no voice; see findVoices
	joined   float64       // its proven demand when it ceased to be a newcomer, requests/s; see voice
	fails    float64       // part of its requests that fails usually, 0 to 1
	failing  float64       // the same of its last some requests
	exceeded time.Time     // when it last claimed more than it could have by growing; see boundGrowth
	crowded  bool          // its account had too many newcomers: it proves no more because it is like others
	limit    float64       // the limit while it is doubted, requests/s; 0 = it is not
	usual    float64       // mean of the newest rates, requests/s; see variability
	gauge    gauge         // requests in progress against the rate
	above    float64       // by how much the newest window was above the expected rate, as a fraction
}

// window is one measured stretch of time.
type window struct {
	since, until time.Time
	length       time.Duration
	issued       float64 // attempts, requests/s
	errors       float64 // requests/s
	dropped      float64 // requests/s; not those that are errors, too
	drops        []CategoryDrop
	sites        []siteWindow
}

func (w *window) rate() float64 { return w.issued + w.dropped }

// failing is the part of the requests that failed, 0 to 1.
func (w *window) failing() float64 { return min(1, w.errors/max(w.rate(), negligible)) }

// siteWindow is the part of a window that went to one locality. A server keeps
// one for each stream, service and locality, so it is small.
type siteWindow struct {
	locality   *isobar.Locality // shared, never written to; nil = the zero one
	issued     float64          // attempts, requests/s; see attempts
	errors     float64          // requests/s
	succeeded  float64          // requests/s
	inProgress float64          // requests
	abandoned  float64          // requests/s that ended without success or error
	details    *siteDetails     // nil = there are none
	priority   uint16
	settled    bool // the gauge before has been taken off
	left       bool // out of the sums by locality; see countLocalities
}

// siteDetails holds the values of a locality that only some clients report.
type siteDetails struct {
	metrics   []MetricSum
	endpoints []EndpointLoad
}

func (s *siteWindow) where() isobar.Locality {
	if s.locality == nil {
		return isobar.Locality{}
	}
	return *s.locality
}

func (s *siteWindow) compare(l *isobar.Locality) int {
	switch {
	case s.locality == l:
		return 0
	case l == nil:
		return s.locality.Compare(isobar.Locality{})
	}
	return s.where().Compare(*l)
}

// detailed returns the details to write to.
func (s *siteWindow) detailed() *siteDetails {
	if s.details == nil {
		s.details = &siteDetails{}
	}
	return s.details
}

// told returns the details to read.
func (s *siteWindow) told() siteDetails {
	if s.details == nil {
		return siteDetails{}
	}
	return *s.details
}

// site finds or makes the part of a locality. Requests beyond maxWindowSites are lost.
func (w *window) site(l *isobar.Locality) *siteWindow {
	i, found := slices.BinarySearchFunc(w.sites, l, func(s siteWindow, l *isobar.Locality) int { return s.compare(l) })
	if !found {
		if len(w.sites) >= maxWindowSites {
			return &siteWindow{locality: l}
		}
		w.sites = slices.Insert(w.sites, i, siteWindow{locality: l})
	}
	return &w.sites[i]
}

// gauge returns the requests in progress at the end of a window.
func (w *window) gauge(l *isobar.Locality) float64 {
	i, found := slices.BinarySearchFunc(w.sites, l, func(s siteWindow, l *isobar.Locality) int { return s.compare(l) })
	if !found {
		return 0
	}
	return w.sites[i].inProgress
}

// add adds one ClusterStats that measured for length. before is the flow's
// window before, nil when there is none. finish completes the window.
func (w *window) add(r *ServiceReport, length time.Duration, before *window, tellsIssued bool) {
	seconds := length.Seconds()
	w.length = max(w.length, length)
	var never float64 // errors that were never issued
	for i := range r.Localities {
		l := &r.Localities[i]
		s := w.site(l.Locality)
		change := s.change(l, before)
		n := attempts(l, change, before != nil, tellsIssued)
		if l.HasIssued || tellsIssued {
			never += max(0, n-float64(l.Issued))
		}
		s.priority = max(s.priority, l.Priority)
		s.issued += n / seconds
		s.errors += float64(l.Errors) / seconds
		s.succeeded += float64(l.Succeeded) / seconds
		s.inProgress += float64(l.InProgress)
		if before != nil { // at most the sent requests: some clients count late endings elsewhere
			s.abandoned += (n - float64(l.Succeeded) - float64(l.Errors) - max(0, change)) / seconds
		}
		for _, m := range l.metrics() {
			d := s.detailed()
			d.metrics = addMetric(d.metrics, m)
		}
		for _, e := range l.endpoints() {
			d := s.detailed()
			d.endpoints = addEndpoint(d.endpoints, EndpointLoad{
				Address: e.Address,
				Issued:  float64(max(e.Issued, e.Succeeded+e.Errors)) / seconds,
				Errors:  float64(e.Errors) / seconds,
			})
		}
	}
	w.drop(r, never, seconds)
}

// change is by how much a locality's requests in progress grew since the window
// before; 0 without one. The gauges of a locality's tiers add up.
func (s *siteWindow) change(l *LocalityReport, before *window) float64 {
	if before == nil {
		return 0
	}
	out := float64(l.InProgress)
	if !s.settled {
		out -= before.gauge(l.Locality)
	}
	s.settled = true
	return out
}

// attempts is the number of requests that the client tried to send to a locality. Envoy counts a
// refused connection as an error and not as issued, so errors beyond the issued requests are
// attempts. Successes, and earlier requests in progress that ended now, were issued before. If
// clients do not report issued requests, attempts computes them from the requests that ended and
// the change of the gauge.
func attempts(l *LocalityReport, change float64, compared, tellsIssued bool) float64 {
	ended, issued := float64(l.Succeeded)+float64(l.Errors), float64(l.Issued)
	switch {
	case l.HasIssued || tellsIssued:
		return issued + max(0, min(float64(l.Errors), ended+min(0, change)-issued))
	case compared:
		return ended + change
	default:
		return ended
	}
}

// drop adds the drops. What overflows a circuit breaker's max_requests is in
// Envoy's total without a category, and an error that was never issued: those
// count once, as attempts.
func (w *window) drop(r *ServiceReport, never, seconds float64) {
	categorised := 0.0
	for _, d := range r.DroppedBy {
		w.drops = addDrop(w.drops, CategoryDrop{Category: d.Category, Rate: float64(d.Count) / seconds})
		categorised += float64(d.Count)
	}
	twice := max(0, min(never, float64(r.Dropped)-categorised))
	w.dropped += (float64(r.Dropped) - twice) / seconds
}

// finish sums the window up.
func (w *window) finish() {
	w.issued, w.errors = 0, 0
	for i := range w.sites {
		s := &w.sites[i]
		s.issued, s.abandoned = max(0, s.issued), max(0, s.abandoned)
		w.issued += s.issued
		w.errors += s.errors
	}
}

// extend prolongs a window that is too short to mean anything (the last report
// of a client that stops; the first of one whose clock starts late) with the
// end of the one before it, so that both together cover full.
func (w *window) extend(before *window, full time.Duration) {
	rest := min(full-w.length, before.length)
	if rest <= 0 {
		return
	}
	total := w.length + rest
	mine, theirs := w.length.Seconds()/total.Seconds(), rest.Seconds()/total.Seconds()
	w.issued = w.issued*mine + before.issued*theirs
	w.errors = w.errors*mine + before.errors*theirs
	w.dropped = w.dropped*mine + before.dropped*theirs
	for i := range w.drops {
		w.drops[i].Rate *= mine
	}
	for _, d := range before.drops {
		w.drops = addDrop(w.drops, CategoryDrop{Category: d.Category, Rate: d.Rate * theirs})
	}
	for i := range w.sites {
		s := &w.sites[i]
		s.scale(mine)
		scaleEndpoints(s.told().endpoints, mine)
	}
	for i := range before.sites {
		b := &before.sites[i]
		s := w.site(b.locality)
		s.issued += b.issued * theirs
		s.errors += b.errors * theirs
		s.succeeded += b.succeeded * theirs
		s.abandoned += b.abandoned * theirs
		s.priority = max(s.priority, b.priority)
		for _, m := range b.told().metrics {
			d := s.detailed()
			d.metrics = addMetric(d.metrics, m)
		}
		for _, e := range b.told().endpoints {
			d := s.detailed()
			d.endpoints = addEndpoint(d.endpoints, EndpointLoad{Address: e.Address, Issued: e.Issued * theirs, Errors: e.Errors * theirs})
		}
	}
	w.length = total
}

func (s *siteWindow) scale(by float64) {
	s.issued, s.errors, s.succeeded, s.abandoned = s.issued*by, s.errors*by, s.succeeded*by, s.abandoned*by
}

// take makes w the flow's newest window. byArrival says that its length is the time between
// arrivals, not the client's measurement.
func (f *flow) take(w window, byArrival bool, arrived time.Time, interval time.Duration) {
	f.extended = w.length < interval/2
	if f.extended {
		before := &f.window
		if f.windows == 0 {
			before = &window{length: interval / 2} // nothing is known of the time before: as if idle
		}
		full := interval
		if byArrival && w.length < interval/10 {
			// Delayed reports arrive together with later ones: the time between arrivals is too
			// long for the first, and 0 for the others.
			full = max(full, min(before.length, maxPeriodIntervals*interval))
		}
		w.extend(before, full)
	}
	w.until = arrived.Add(-f.stream.lag)
	w.since = w.until.Add(-w.length)
	// Who reports more often than asked is not believed sooner.
	pace := max(0, min(1, arrived.Sub(f.told).Seconds()/interval.Seconds()))
	f.window, f.told, f.own = w, arrived, true
	if w.rate() >= negligible { // reports of nothing are no history
		if f.began.IsZero() {
			f.began = arrived
		}
		if svc := f.source.service; svc.began.IsZero() {
			svc.began = arrived
		}
	}
	f.news += w.length
	f.judge(pace)
}

// missing reports whether the stream is open and its report overdue.
func (f *flow) missing(now time.Time, interval time.Duration) bool {
	return f.stream.closed.IsZero() && now.Sub(f.told) > f.stream.freshFor(interval)
}

// trust is how far a flow counts now: 1 while reports come or are only late,
// falling once they are missing for long or the stream is closed. It does not
// fall while those of most clients in its place are missing; see standIn.
func (f *flow) trust(now time.Time, interval time.Duration) (trust float64, fresh bool) {
	if !f.stream.closed.IsZero() {
		left := 1 - now.Sub(f.stream.closed).Seconds()/interval.Seconds()
		return max(0, min(1, left)), false
	}
	due := f.stream.due(interval)
	silent := now.Sub(f.told)
	fresh = f.own && silent <= f.stream.freshFor(interval)
	hold := scale(due, holdIntervals) + due/4 + f.stream.delay // a report that is a little late is not missing
	if f.source.silent || f.stream.unheard {
		return 1, fresh // it is not this client that has a problem
	}
	if at := f.source.silentAt; at.After(f.told) { // a rate that replaced missing reports for long fades from the end of that
		silent = min(silent, hold+max(0, now.Sub(at)))
	}
	if silent <= hold {
		return 1, fresh
	}
	trust = math.Exp(-(silent - hold).Seconds() / due.Seconds())
	if trust < 0.01 {
		return 0, false
	}
	return trust, false
}

// ofCrowd reports whether a flow is of a crowd; findCrowds was called for its service.
func (f *flow) ofCrowd() bool {
	a, svc := f.stream.by, f.source.service
	return svc.crowds && a != nil && a.of == svc && a.crowded
}

// take counts the newest window of a flow, and reports whether it holds a sample
// that no snapshot before this one counted.
func (f *flow) sample(now time.Time) bool {
	g := &f.gauge
	switch {
	case f.window.until.Equal(g.sampled):
		return g.at.Equal(now)
	case !f.own:
		return false
	}
	g.sampled, g.at = f.window.until, now
	held := 0.0
	for i := range f.window.sites {
		held += f.window.sites[i].inProgress
	}
	g.short.add(held, f.window.issued, memoryGauges)
	g.long.add(held, f.window.issued, longMemory)
	return true
}

// newcomer reports whether a flow has no history at a time.
func (f *flow) newcomer(now time.Time, interval time.Duration) bool {
	if f.busy == 0 {
		return true
	}
	svc := f.source.service
	if !svc.remembered && f.began.Sub(svc.began) <= scale(interval, foundation) {
		return false
	}
	return now.Sub(f.began) < scale(interval, introduction)
}

// junior reports whether a flow that is no newcomer came when others had a history, less
// than seniority ago, or has claimed too much since.
func (f *flow) junior(now time.Time, interval time.Duration) bool {
	return f.compared && !f.newcomer(now, interval) && now.Sub(later(f.began, f.exceeded)) < scale(interval, seniority)
}

// counting is how far a flow counts now, 0 to 1.
func (f *flow) counting(now time.Time, interval time.Duration) float64 {
	trust, _ := f.trust(now, interval)
	return trust * f.weight
}

// counted is how much of a flow counts now, requests/s.
func (f *flow) counted(now time.Time, interval time.Duration) float64 {
	return f.counting(now, interval) * f.window.rate()
}

// idle removes a flow that no longer counts, and tells so.
func (f *flow) idle(now time.Time, interval time.Duration) bool {
	trust, _ := f.trust(now, interval)
	if trust > 0 {
		return false
	}
	f.source.remove(f)
	return true
}
