package load

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Rules of outages. A locality is dead when requests arrive there and nearly
// none succeeds, from any source; a locality at its capacity, where requests go on
// to succeed, is only full.
const (
	enoughDecided  = 10.0 // requests that succeeded or failed, which make a window
	clearlyDecided = 30.0 // the same, of a window that is a verdict alone
	deadShare      = 0.20 // of them that succeed; below it the window is bad
	fullLoad       = 0.9  // of the capacity: from it on failures are overload
	fullIntervals  = 4.0  // for which a locality counts as full afterwards: waiting requests have to be served
	fullWindows    = 4    // windows in a row without any success that make even a full locality dead
	risingPoints   = 0.05 // by which the part that fails is above the usual one while it rises
	risingSigmas   = 3.0
	usualIntervals = 3.0  // time constant of the usual part
	enoughServed   = 3.0  // requests of a probe that succeed, which open a locality: one that fails 90% serves one now and then
	openFirst      = 0.25 // of its share that a locality gets when it opens again
	wariest        = 3    // doublings of the reports that open a locality which failed again
	calmIntervals  = 12.0 // after which a locality that opened is as good as any
	pacedIntervals = 4.0  // after opening in full, for which shares may still move back quickly
)

// Outage is a locality in which requests fail, or did until a moment ago.
type Outage struct {
	Locality isobar.Locality
	Since    time.Time // of the verdict
	// Attempts and Succeeded are the requests of all sources together to the locality, and the
	// successful ones, in the newest judged window.
	Attempts, Succeeded float64
	// Open is the part of its share that the locality may get: 0 = a probe, 1 =
	// all of it.
	Open float64
}

// Opening is a pair that works again: its share comes back in parts.
type Opening struct {
	Source   isobar.Locality
	Locality isobar.Locality
	Open     float64 // part of its share, above 0 to 1
}

// trend is the part of the requests that fails, window by window.
type trend struct {
	ok, failed float64 // requests, of the open window
	fraction   float64 // of the newest window, that failed
	usual      float64 // slow mean of fraction
	windows    int
	rising     bool
}

// close judges the open window, if it holds enough, and begins another one.
func (t *trend) close(least float64) bool {
	n := t.ok + t.failed
	if n < least || n <= 0 {
		return false
	}
	t.fraction = t.failed / n
	chance := risingSigmas * math.Sqrt(max(t.usual*(1-t.usual), 1/n)/n)
	t.rising = t.windows > 0 && t.fraction > t.usual+risingPoints+chance
	if t.windows == 0 {
		t.usual = t.fraction
	}
	t.usual += (t.fraction - t.usual) * -math.Expm1(-1/usualIntervals)
	t.windows++
	t.ok, t.failed = 0, 0
	return true
}

// outage is the state of a locality from all sources together.
type outage struct {
	locality isobar.Locality
	trend    trend
	attempts float64   // requests, of the open window
	expected float64   // requests that the shares in force would have sent there meanwhile
	opened   time.Time // when the open window was
	nodes    int       // that sent there in the rounds of the open window

	// Of the newest window.
	decided   float64 // requests that succeeded or failed; 0 = none was closed
	witnesses int     // nodes that sent them
	avoided   bool    // no window was closed, since clients send less there than planned
	judged    time.Time

	bad    int       // windows in a row in which nearly nothing succeeded
	full   int       // of them, those at capacity
	fullAt time.Time // when it was last at capacity
	good   int       // reports in a row that a probe succeeded
	served float64   // requests that succeeded in them
	works  time.Time // when most requests were last seen to succeed
	shown  Outage    // of the newest window
	since  time.Time // when it was found dead; zero = it is well
	agreed bool      // it is dead because all sources agree that nothing arrives
	ended  time.Time // when it last opened
	open   float64   // part of its share that it gets; 1 = all
	warned time.Time // when the part that fails was last seen to rise
	wary   int       // how often it failed again after it was opened
	lifted time.Time // when open last changed upwards
}

// dead reports whether the locality gets a probe only.
func (o *outage) dead() bool { return !o.since.IsZero() && o.open == 0 }

func (s *serviceAdherence) outage(l isobar.Locality) *outage {
	i, found := slices.BinarySearchFunc(s.outages, l, func(o *outage, l isobar.Locality) int { return o.locality.Compare(l) })
	if !found {
		s.outages = slices.Insert(s.outages, i, &outage{locality: l, open: 1, opened: s.now})
	}
	return s.outages[i]
}

func (s *serviceAdherence) findOutage(l isobar.Locality) *outage {
	i, found := slices.BinarySearchFunc(s.outages, l, func(o *outage, l isobar.Locality) int { return o.locality.Compare(l) })
	if !found {
		return nil
	}
	return s.outages[i]
}

// outcome splits the requests of a window into successes and failures; the others are in transit.
// Clients of some protocols report no success: then every request without an error counts as one.
// If requests are answered quickly, a window without any answer is one of failures. So many fewer
// failed as is doubted.
func (s *serviceAdherence) outcome(x *LandedLoad, window time.Duration, doubted float64) (ok, failed float64) {
	seconds := window.Seconds()
	if s.succeeded.IsZero() {
		return max(0, x.Issued-x.Errors+min(0, doubted)) * seconds, max(0, x.Errors-doubted) * seconds
	}
	failed = x.Errors + x.Abandoned
	if x.Succeeded == 0 && failed == 0 && x.MeanIssued > 0 && hangTimes*x.LatencyMS() < 1000*seconds {
		failed = x.Issued
	}
	return max(0, x.Succeeded+min(0, doubted)) * seconds, max(0, failed-doubted) * seconds
}

// hangTimes is how many times the usual latency a window without an answer has
// to last.
const hangTimes = 5.0

// experience counts the outcomes of a source's requests in one round of windows.
func (s *serviceAdherence) experience(src *sourceEvidence, l *SourceLoad) {
	sent := 0.0
	for i := range l.Landed {
		sent += l.Landed[i].Issued * l.Window.Seconds()
	}
	for _, p := range src.pairs {
		if p.share >= barShare {
			s.outage(p.locality).expected += p.share * sent
		}
	}
	for i := range l.Landed {
		x := &l.Landed[i]
		ok, failed := s.outcome(x, l.Window, x.Doubted)
		o := s.outage(x.Locality)
		o.attempts += max(x.Issued*l.Window.Seconds(), ok+failed)
		o.trend.ok += ok
		o.trend.failed += failed
		if ok+failed > 0 {
			o.nodes += src.nodes
		}
		if x.known <= 0 { // the way from there is known to these clients only
			ok, failed = s.outcome(x, l.Window, 0)
		}
		p := s.reported(src, x.Locality)
		if p == nil {
			continue
		}
		p.trend.ok += ok
		p.trend.failed += failed
		if p.trend.close(enoughDecided) {
			p.tried = s.now
		}
	}
}

// judgeOutages closes the windows of the localities, then moves their states on: the meaning of
// each depends on the others.
func (s *serviceAdherence) judgeOutages(l *ServiceLoad) {
	s.outages = slices.DeleteFunc(s.outages, func(o *outage) bool { return s.left(o.locality) })
	for _, o := range s.outages {
		o.close(s.now, s.interval)
		s.fill(o, l)
	}
	for _, o := range s.outages {
		switch {
		case o.decided > 0:
			s.move(o)
		case o.since.IsZero():
			s.suspect(o)
		case o.dead() && !s.barsAny(o.locality) && s.now.Sub(later(o.judged, o.since)) > scale(s.interval, dropIntervals):
			s.reopen(o) // no probe goes there that could tell
		case o.open > 0 && s.now.Sub(o.lifted) >= 2*s.interval:
			s.advance(o) // no client sends anything there
		}
	}
}

// close judges the open window of a locality once it has lasted, and holds
// enough. decided is 0 where it does not.
func (o *outage) close(now time.Time, interval time.Duration) {
	o.decided, o.avoided = 0, false
	if now.Sub(o.opened) < interval*3/4 {
		return
	}
	o.opened = now
	least := enoughDecided
	if !o.since.IsZero() {
		least = 1
	}
	shown, decided := Outage{Attempts: o.attempts, Succeeded: o.trend.ok}, o.trend.ok+o.trend.failed
	expected := o.expected
	o.expected = 0
	if !o.trend.close(least) {
		o.avoided = expected >= enoughDecided && o.attempts < landsAtAll*expected
		// A few old requests must not count as the present state.
		o.trend.ok, o.trend.failed, o.attempts = o.trend.ok/2, o.trend.failed/2, o.attempts/2
		return
	}
	if !o.dead() { // the evidence by which it was found dead is stronger than its probes
		o.shown = shown
	}
	o.decided, o.witnesses, o.judged = decided, o.nodes, now
	o.attempts, o.nodes = 0, 0
	if o.trend.fraction <= 0.5 {
		o.works = now
	}
}

// move takes one window of decided requests into account.
func (s *serviceAdherence) move(o *outage) {
	switch {
	case o.since.IsZero():
		s.condemn(o)
	case o.open == 0:
		if o.trend.fraction > deadShare {
			o.good, o.served = 0, 0
			return
		}
		o.served += o.decided
		if o.good++; o.good >= verdictWindows<<min(o.wary, wariest) && o.served >= enoughServed {
			s.reopen(o)
		}
	case o.trend.fraction > 0.5:
		o.open, o.good, o.served, o.since = 0, 0, 0, s.now
		o.wary++
	case o.trend.fraction <= deadShare:
		s.advance(o)
	}
}

// barsAny reports whether a source is barred from a locality.
func (s *serviceAdherence) barsAny(l isobar.Locality) bool {
	return slices.ContainsFunc(s.sources, func(src *sourceEvidence) bool {
		p := src.find(l)
		return p != nil && !p.barred.IsZero()
	})
}

// advance returns a locality that works again twice the part of its share.
func (s *serviceAdherence) advance(o *outage) {
	if o.open >= 1 {
		if s.now.Sub(o.lifted) > scale(s.interval, calmIntervals) {
			o.since, o.wary = time.Time{}, 0
		}
		return
	}
	o.open, o.lifted = min(1, 2*o.open), s.now
}

// condemn decides whether a locality that was well is dead.
func (s *serviceAdherence) condemn(o *outage) {
	if 1-o.trend.fraction >= deadShare {
		o.bad, o.full = 0, 0
		if o.trend.rising {
			o.warned = s.now
		}
		return
	}
	if s.overloaded(o) {
		o.full++
		if o.trend.fraction < 1 || o.full < fullWindows {
			return
		}
	}
	o.bad++
	s.sentence(o)
}

// suspect counts a window in which clients keep away from a locality that nearly
// all requests to failed just before: their outlier detection ejected it, so no
// more failures will come. When the ejection ends they would all go back.
//
// The window before may hold the begin of the fault, and successes of the time before it:
// then the few requests that still come have to fail.
func (s *serviceAdherence) suspect(o *outage) {
	if !o.avoided || o.bad == 0 && !o.breaksDown() || !s.recent(o.judged) || s.overloaded(o) {
		return
	}
	o.bad++
	o.judged = s.now
	s.sentence(o)
}

// breaksDown reports whether most requests of the newest window failed, unlike before, and nearly
// all of the few since then do. A locality that is only full continues to serve.
func (o *outage) breaksDown() bool {
	t := &o.trend
	return t.rising && t.fraction > 0.5 && t.failed > 0 && t.ok <= deadShare*(t.ok+t.failed)
}

// sentence takes all but a probe from a locality in which requests fail, if that
// is sure and there is another one.
func (s *serviceAdherence) sentence(o *outage) {
	warned := !o.warned.IsZero() && s.now.Sub(o.warned) <= 2*s.interval
	sure := o.decided >= clearlyDecided || warned || o.bad >= verdictWindows
	if o.witnesses < barNodes && o.bad < 2*verdictWindows {
		sure = false // one client is a poor witness
	}
	if !sure || !s.elsewhere(o) {
		return
	}
	o.kill(s.now, false)
}

// kill takes all but a probe from a locality.
func (o *outage) kill(now time.Time, agreed bool) {
	o.since, o.open, o.good, o.bad, o.full, o.agreed = now, 0, 0, 0, 0, agreed
	o.served = 0
	if agreed { // nothing arrives, whatever became of the last that did
		o.shown = Outage{}
	}
}

// reopen returns a locality a part of its share again, from all sources: those
// with little traffic would wait for ever for their own probes.
func (s *serviceAdherence) reopen(o *outage) {
	o.open, o.lifted, o.ended = openFirst, s.now, s.now
	for _, src := range s.sources {
		if p := src.find(o.locality); p != nil && !p.barred.IsZero() {
			p.barred, p.bad, p.good = time.Time{}, 0, 0
		}
	}
}

// fill notes when so much is sent to a locality, or planned to be, that failures say
// no more than that it is too much.
func (s *serviceAdherence) fill(o *outage, l *ServiceLoad) {
	site := s.site(o.locality)
	if site == nil {
		return
	}
	capacity := site.Capacity
	if capacity <= 0 {
		capacity = site.Given
	}
	sent, planned := 0.0, 0.0
	for i := range l.Sites {
		if l.Sites[i].Locality == o.locality {
			sent = l.Sites[i].Issued
		}
	}
	for _, src := range s.sources {
		if p := src.find(o.locality); p != nil {
			planned += p.share * src.rate
		}
	}
	if capacity > 0 && max(sent, planned) >= fullLoad*capacity {
		o.fullAt = s.now
	}
}

// overloaded reports whether a locality was full recently.
func (s *serviceAdherence) overloaded(o *outage) bool {
	return !o.fullAt.IsZero() && s.now.Sub(o.fullAt) <= scale(s.interval, fullIntervals)
}

// elsewhere reports whether the service works apart from a locality, and there is
// another one that may do: a service that fails everywhere drains nothing.
func (s *serviceAdherence) elsewhere(at *outage) bool {
	worked := !at.works.IsZero()
	for _, o := range s.outages {
		worked = worked || (o != at && s.fresh(o.works))
	}
	return worked && slices.ContainsFunc(s.localities(), func(l isobar.Locality) bool {
		if l == at.locality {
			return false
		}
		o := s.findOutage(l)
		return o == nil || (o.since.IsZero() || o.open > 0) && (o.trend.windows == 0 || o.trend.fraction <= 0.5)
	})
}

func (s *serviceAdherence) site(l isobar.Locality) *Site {
	i, found := slices.BinarySearchFunc(s.sites, l, func(x Site, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !found {
		return nil
	}
	return &s.sites[i]
}

// worksFor reports whether requests of sources other than one were recently seen to
// succeed in a locality.
func (s *serviceAdherence) worksFor(others *sourceEvidence, l isobar.Locality) bool {
	return slices.ContainsFunc(s.sources, func(src *sourceEvidence) bool {
		p := src.find(l)
		return src != others && p != nil && s.fresh(p.tried) && p.trend.fraction <= deadShare
	})
}

// openings lists the pairs of a source whose share comes back in parts, and those that may go
// back quickly. localities are those of the service.
func (s *serviceAdherence) openings(src *sourceEvidence, localities []isobar.Locality) (out []Opening) {
	for _, l := range localities {
		open, lifted := 1.0, time.Time{}
		if o := s.findOutage(l); o != nil && o.open > 0 {
			open, lifted = o.open, o.lifted
		}
		if p := src.find(l); p != nil && !p.lifted.IsZero() {
			open, lifted = min(open, p.open), later(lifted, p.lifted)
		}
		if open < 1 || (!lifted.IsZero() && s.now.Sub(lifted) <= scale(s.interval, pacedIntervals)) {
			out = append(out, Opening{Source: src.source, Locality: l, Open: open})
		}
	}
	return out
}

// recent reports whether a window was judged in the newest reports, give or take
// one.
func (s *serviceAdherence) recent(at time.Time) bool {
	return !at.IsZero() && s.now.Sub(at) <= 2*s.interval
}

// failures lists the failures of whole localities.
func (s *serviceAdherence) failures(f *Deviations) {
	for _, o := range s.outages {
		rising := o.trend.rising && (s.recent(o.judged) || o.avoided) // whom it fails sends nothing that could tell
		for _, src := range s.sources {
			p := src.find(o.locality)
			rising = rising || (p != nil && p.trend.rising && s.recent(p.tried))
		}
		if rising {
			f.Rising = append(f.Rising, o.locality)
		}
		if o.since.IsZero() {
			continue
		}
		shown := o.shown
		shown.Locality, shown.Since, shown.Open = o.locality, o.since, o.open
		f.Outages = append(f.Outages, shown)
		if o.open == 0 {
			f.Unreachable = append(f.Unreachable, o.locality)
		}
	}
	if len(f.Unreachable) > 0 && len(f.Unreachable) == len(s.localities()) {
		f.Unreachable = nil // when everything looks dead it is better to try
	}
}
