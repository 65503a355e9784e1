package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Outcomes counts the newest requests of a service: those of as many windows as it
// takes to judge by, so that a service with few requests is judged, too.
type Outcomes struct {
	Attempts, Failed float64 // requests
}

// Few reports whether the newest windows alone hold too few requests to judge by.
func (o Outcomes) Few() bool { return o.Attempts <= enoughOutcomes }

const (
	// enoughOutcomes is how many requests are remembered, where the newest windows do
	// not hold more.
	enoughOutcomes = 400
	// outcomesTimes is the time constant with which they are forgotten, intervals.
	outcomesTimes = 24.0
)

// outcomes are those of a stretch of time.
type outcomes struct {
	Outcomes

	time time.Duration // measured; of several sources, the longest
}

// Failures that come and go, as when clients eject a broken endpoint again and again, do not end
// between two bursts: the worst of ten windows counts.
const (
	recentWindows = 10
	burstWindows  = 3 // in a row
)

// recentOutcomes are the outcomes of the newest windows.
type recentOutcomes struct {
	windows [recentWindows]Outcomes
	next    int // place of the oldest
}

// add takes in the newest window, instead of the oldest.
func (r *recentOutcomes) add(newest *outcomes) {
	if newest.time <= 0 {
		return
	}
	r.windows[r.next] = newest.Outcomes
	r.next = (r.next + 1) % recentWindows
}

// worst returns the three windows in a row of whose requests the largest part failed.
func (r *recentOutcomes) worst() (worst Outcomes) {
	for first := range recentWindows - burstWindows + 1 {
		var run Outcomes
		for i := range burstWindows {
			w := &r.windows[(r.next+first+i)%recentWindows]
			run.Attempts += w.Attempts
			run.Failed += w.Failed
		}
		if run.Failed*worst.Attempts > worst.Failed*run.Attempts || worst.Attempts == 0 {
			worst = run
		}
	}
	return worst
}

// count adds the sent and failed requests a second in newly measured time.
func (o *outcomes) count(landed []LandedLoad, news time.Duration) {
	if news <= 0 {
		return
	}
	o.time = news
	for i := range landed {
		l := &landed[i]
		o.Attempts += max(l.Issued, l.Succeeded+l.Errors) * news.Seconds()
		o.Failed += l.Errors * news.Seconds()
	}
}

// join adds the requests that another source sent meanwhile.
func (o *outcomes) join(other *outcomes) {
	o.Attempts += other.Attempts
	o.Failed += other.Failed
	o.time = max(o.time, other.time)
}

// add takes in the newest requests of all sources, and forgets as many of the older
// ones of all sources alike.
func (o *outcomes) add(newest *outcomes, interval time.Duration) {
	if newest.time <= 0 {
		return
	}
	keep := 1 - gain(newest.time, outcomesTimes, interval)
	if o.Attempts > 0 {
		keep = min(keep, max(0, enoughOutcomes-newest.Attempts)/o.Attempts)
	}
	o.Attempts = o.Attempts*keep + newest.Attempts
	o.Failed = o.Failed*keep + newest.Failed
}

// mostFutile bounds how many requests without success are remembered, so that few windows
// without a request are enough to forget them.
const mostFutile = 25.0

// Futile are the requests that ended since the last one that succeeded.
type Futile struct {
	// Attempts and Failed are requests, at most mostFutile; those of long ago count less.
	Attempts, Failed float64
}

// count takes in what a source sent to a locality in newly measured time. succeeds says that
// some request of the service has succeeded. Clients that never report a success, such as TCP
// proxies, leave all requests without an error abandoned.
func (f *Futile) count(l *LandedLoad, news time.Duration, succeeds bool) {
	failed := l.Errors
	if succeeds {
		failed += l.Abandoned
	}
	f.Attempts += max(l.Issued, failed) * news.Seconds()
	f.Failed += failed * news.Seconds()
	if f.Attempts > mostFutile {
		f.Attempts, f.Failed = mostFutile, f.Failed*mostFutile/f.Attempts
	}
}

// fade forgets old requests.
func (f *Futile) fade(wall, interval time.Duration) {
	keep := 1 - gain(wall, outcomesTimes, interval)
	f.Attempts, f.Failed = f.Attempts*keep, f.Failed*keep
}

// SiteFutile are the requests of all sources to one locality.
type SiteFutile struct {
	Futile

	Locality isobar.Locality
}

// fail counts for each source, and for each locality, the requests since one succeeded.
func (s *service) fail(loads []SourceLoad, wall, interval time.Duration) {
	for i := range loads {
		s.succeeds = s.succeeds || slices.ContainsFunc(loads[i].Landed, func(l LandedLoad) bool { return l.Succeeded > 0 })
	}
	for i := range s.futile {
		s.futile[i].fade(wall, interval)
	}
	for i := range loads {
		l, f := &loads[i], &s.sources[i].futile
		f.fade(wall, interval)
		for j := range l.Landed {
			x := &l.Landed[j]
			f.count(x, l.newest.time, s.succeeds)
			if l.newest.time > 0 && x.Errors+x.Abandoned > 0 {
				s.futileAt(x.Locality).count(x, l.newest.time, s.succeeds)
			}
		}
	}
	for i := range loads {
		l := &loads[i]
		for j := range l.Landed {
			if x := &l.Landed[j]; x.Succeeded > 0 {
				s.sources[i].futile = Futile{}
				if k, found := s.findFutile(x.Locality); found {
					s.futile[k].Futile = Futile{} // the end of this forgets it
				}
			}
		}
		l.Futile = s.sources[i].futile
	}
	s.futile = slices.DeleteFunc(s.futile, func(f SiteFutile) bool { return f.Failed < negligible })
	s.boundFutile(loads)
}

// moreFutile is how many localities more than twice those of the present load a service remembers failures
// of, up to maxSites: clients may name other ones in each report.
const moreFutile = 16

// boundFutile forgets the localities with the fewest failures that the service does not have, if there are too many.
func (s *service) boundFutile(loads []SourceLoad) {
	most := moreFutile
	for i := range loads {
		most += 2 * len(loads[i].Landed)
	}
	most = min(most, maxSites)
	if len(s.futile) <= most {
		return
	}
	slices.SortStableFunc(s.futile, func(a, b SiteFutile) int { return cmp.Compare(b.Failed, a.Failed) })
	kept := make([]SiteFutile, 0, most)
	for i, f := range s.futile {
		if i < most || s.has(f.Locality) {
			kept = append(kept, f)
		}
	}
	s.futile = kept
	slices.SortFunc(s.futile, func(a, b SiteFutile) int { return a.Locality.Compare(b.Locality) })
}

func (s *service) findFutile(l isobar.Locality) (int, bool) {
	return slices.BinarySearchFunc(s.futile, l, func(f SiteFutile, l isobar.Locality) int { return f.Locality.Compare(l) })
}

// futileAt finds or makes the requests to a locality.
func (s *service) futileAt(l isobar.Locality) *SiteFutile {
	i, found := s.findFutile(l)
	if !found {
		s.futile = slices.Insert(s.futile, i, SiteFutile{Locality: l})
	}
	return &s.futile[i]
}
