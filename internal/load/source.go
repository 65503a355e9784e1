package load

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// source is a client locality that sends to a service.
type source struct {
	service  *service
	locality isobar.Locality
	founder  string  // the address without certificate of its first client; see memory
	flows    []*flow // sorted by stream

	demand      float64   // smoothed, requests/s
	since       time.Time // when it was first measured; zero before
	base        float64   // demand before failures began to grow it, requests/s
	baseErrors  float64   // failures that are usual, requests/s
	suffered    time.Time // when many of its requests last failed
	saved       float64   // remembered from an earlier process, requests/s; 0 when not in use
	before      float64   // of saved, the proven part, also when it is not in use any more, requests/s
	doubted     float64   // part of saved that was not proven, 0 to 1
	memory      held      // demand when its clients were last all there
	known       float64   // the present load of its clients with a history, requests/s
	knownProven float64   // the proven part of it, requests/s
	standing    float64   // the earlier load of its clients with a history, requests/s; see stand
	vouched     float64   // the proven part of it, requests/s
	proven      float64   // demand that may raise drops, requests/s; see prove
	unproven    float64   // demand that is not proven, requests/s
	calm        float64   // the load before requests began to fail, requests/s
	lost        []loss    // streams that closed recently and did not come back
	means       []siteMean
	futile      Futile

	watched time.Time // when clients of it were last connected
	kept    held      // demand when most of its clients were last heard of

	variability variability

	silent   bool      // most of its clients are there and tell nothing
	silentAt time.Time // when they last did not
}

// held is demand taken from earlier reports because newer ones are missing.
type held struct{ demand, unproven float64 } // requests/s

// raise raises the demand of a source to the demand taken from earlier reports.
func (l *SourceLoad) raise(of held) {
	if more := of.demand - l.Demand; more > 0 {
		l.Unproven = max(l.Unproven, min(of.unproven, l.Unproven+more))
		l.Demand = of.demand
	}
}

// remember adds demand of an earlier process.
func (s *source) remember(demand, unproven float64) {
	unproven += s.saved * s.doubted
	s.saved += demand
	s.doubted = unproven / s.saved
	s.kept = held{demand: s.saved, unproven: unproven}
	s.before = s.savedProven()
}

// prove returns how much of a source's demand raises no drop. raw is the counted load of its
// clients, of which new is unproven.
func (s *source) prove(demand, raw, unproven, errors float64, wall, interval time.Duration) float64 {
	failing := errors-s.baseErrors > usualErrors*raw
	if failing && s.calm > tinyBase*raw {
		unproven += max(0, min(raw-s.calm, errors-s.baseErrors))
		s.calm += (raw - s.calm) * gain(wall, calmTimes, interval)
	} else {
		s.calm = raw
	}
	kept := min(demand, max(s.savedProven(), s.proven*math.Exp(-wall.Seconds()/(provenTimes*interval.Seconds()))))
	// Demand is smoothed, and falls slowly when its clients are gone. What they had not
	// proven stays unproven. What clients send now, and have proven, is proven at once.
	s.unproven = max(unproven, min(s.unproven, demand-(raw-unproven)))
	unproven = max(0, min(s.unproven, demand-kept))
	s.proven = demand - unproven
	return unproven
}

// savedProven is the part of the saved demand that may raise drops, requests/s.
func (s *source) savedProven() float64 { return s.saved * (1 - s.doubted) }

// claim returns the demand that a later process must not take for proven. As long as no client
// has a history, that is the demand that was unproven before this process.
func (s *source) claim(l *SourceLoad, now time.Time, interval time.Duration) {
	l.Claimed = l.Unproven
	if began := s.service.began; began.IsZero() || now.Sub(began) < scale(interval, introduction+guardWindows) {
		l.Claimed = l.Demand * s.doubted
		if s.service.remembered {
			l.Claimed = max(l.Claimed, l.Demand-proofSlack*s.before)
		}
	}
}

// loss is a stream that closed.
type loss struct {
	stream StreamID
	at     time.Time
	rate   float64 // requests/s
}

// siteMean is the long mean of the load that goes to a locality.
type siteMean struct {
	locality           isobar.Locality
	issued, inProgress float64
}

func (s *source) find(f *flow) (int, bool) {
	return slices.BinarySearchFunc(s.flows, f.stream.id, func(x *flow, id StreamID) int { return cmp.Compare(x.stream.id, id) })
}

func (s *source) insert(f *flow) {
	i, _ := s.find(f)
	s.flows = slices.Insert(s.flows, i, f)
}

func (s *source) remove(f *flow) {
	if i, found := s.find(f); found {
		s.flows = slices.Delete(s.flows, i, i+1)
	}
}

// Bounds on how failures move demand. Retries must not count as demand at once, but they look the
// same as demand that grows and fails. Growth that lasts is accepted, because retries end when
// their locality gets no more traffic. And clients that wait for answers, or have no destination,
// send less without wanting less.
const (
	retryGrowth  = 0.25 // of the demand before
	usualErrors  = 0.05 // of the rate: more than that above usual is a failure
	tinyBase     = 0.01 // of the rate: below it there is no demand before
	failureTimes = 60.0 // intervals after which lasting failures become usual
	retryTimes   = 4.0  // intervals after which lasting growth by failures is demand
	someServed   = 0.05 // of the rate: if fewer requests succeed, growth means retries
	muchFails    = 0.2  // of the rate: from it on clients may send less because of it
	someDropped  = 0.1  // of the rate, and
	someIssued   = 0.1  // of the rate: with that, clients count all that they want
	agingTimes   = 12.0 // smoothing of demand that shrinks while so much fails, intervals
	agingLimit   = 36.0 // intervals for which it shrinks so slowly after the last failure
)

// capRetries takes off the part of raw that is growth by failures beyond 1.25
// times the demand before.
func (s *source) capRetries(raw, errors float64) float64 {
	if s.base <= tinyBase*raw {
		return raw
	}
	growth := min(raw-s.base, errors-s.baseErrors)
	return raw - max(0, growth-retryGrowth*s.base)
}

// follow moves the smoothed demand towards raw. news is how much measured time
// came in since the last step, wall how much time went by.
func (s *source) follow(raw, errors, dropped float64, news, wall, interval time.Duration, now time.Time, fading bool) {
	target := s.capRetries(raw, errors)
	step := min(news, scale(interval, holdIntervals))
	drops := countsAll(raw, dropped)
	suffers := s.suffers(raw, errors, drops, now, interval) && !fading
	switch {
	case target >= s.demand && !s.since.IsZero() && now.Sub(s.since) < scale(interval, eagerIntervals):
		s.demand = target // its clients are only just coming in
	case target >= s.demand:
		s.demand += (target - s.demand) * gain(step, riseIntervals, interval)
	default:
		if fading {
			step = max(step, wall) // time goes by without reports
		}
		fall := fallIntervals
		switch {
		case suffers:
			fall = agingTimes
		case drops:
			fall = riseIntervals // a drop that is no longer needed fails requests
		}
		s.demand += (target - s.demand) * gain(step, fall, interval)
	}
	if s.since.IsZero() { // a new source is answered at once
		s.demand = target
		if news > 0 {
			s.since = now
		}
	}
	if errors-s.baseErrors > usualErrors*raw && s.base > tinyBase*raw {
		if raw-errors >= someServed*raw {
			s.base += (raw - s.base) * gain(wall, retryTimes, interval)
		} else {
			s.base += (s.demand - s.base) * gain(wall, failureTimes, interval)
		}
		s.baseErrors += (errors - s.baseErrors) * gain(wall, failureTimes, interval)
		return
	}
	s.base = s.demand
	s.baseErrors += (errors - s.baseErrors) * gain(step, riseIntervals, interval)
}

// suffers reports whether so many of a source's requests fail, or failed until it sent hardly
// any, that sending less does not mean wanting less. Envoy counts nothing while it has no healthy
// host. drops is the result of countsAll.
func (s *source) suffers(raw, errors float64, drops bool, now time.Time, interval time.Duration) bool {
	if errors > max(muchFails*raw, s.baseErrors) && errors >= negligible {
		s.suffered = now
		return true
	}
	return raw < muchFails*s.demand && !drops && !s.suffered.IsZero() && now.Sub(s.suffered) <= scale(interval, agingLimit)
}

// countsAll reports whether clients drop a good part of their requests and issue
// the rest. Such clients count all that they want: Envoy drops before it looks for
// a host, and a client without a healthy host issues nothing. All in requests/s.
func countsAll(raw, dropped float64) bool {
	return dropped >= someDropped*raw && raw-dropped >= someIssued*raw && raw >= negligible
}

// gain is the share of a step that a first-order filter takes in step with a
// time constant in intervals.
func gain(step time.Duration, constant float64, interval time.Duration) float64 {
	return -math.Expm1(-step.Seconds() / (constant * interval.Seconds()))
}

// moreMeans is how many localities more than twice those of the present load a source has means of:
// clients may name other ones in each report.
const moreMeans = 4

// learn moves the long means towards the present landed load.
func (s *source) learn(landed []LandedLoad, news, interval time.Duration) {
	if news <= 0 {
		return
	}
	g := gain(news, longIntervals, interval)
	for i := range landed {
		l := &landed[i]
		j, found := slices.BinarySearchFunc(s.means, l.Locality, func(m siteMean, l isobar.Locality) int { return m.locality.Compare(l) })
		if !found && len(s.means) < 2*len(landed)+moreMeans {
			s.means = slices.Insert(s.means, j, siteMean{locality: l.Locality, issued: l.Issued, inProgress: l.InProgress})
		}
	}
	kept := s.means[:0]
	for _, m := range s.means {
		var now LandedLoad
		if l := findLanded(landed, m.locality); l != nil {
			now = *l
		}
		m.issued += (now.Issued - m.issued) * g
		m.inProgress += (now.InProgress - m.inProgress) * g
		if m.issued >= negligible || m.inProgress >= negligible {
			kept = append(kept, m)
		}
	}
	s.means = kept
}

func (s *source) mean(l isobar.Locality) siteMean {
	i, found := slices.BinarySearchFunc(s.means, l, func(m siteMean, l isobar.Locality) int { return m.locality.Compare(l) })
	if !found {
		return siteMean{}
	}
	return s.means[i]
}

func findLanded(landed []LandedLoad, l isobar.Locality) *LandedLoad {
	i, found := slices.BinarySearchFunc(landed, l, func(x LandedLoad, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !found {
		return nil
	}
	return &landed[i]
}

// found tells the sources that a stream's loss was made good by a reconnect.
func (s *source) found(id StreamID) {
	s.lost = slices.DeleteFunc(s.lost, func(l loss) bool { return l.stream == id })
}

// agreed is the mean rate of the clients of a source whose requests in progress do not
// contradict it, requests/s.
func (s *source) agreed() float64 {
	sum, n := 0.0, 0.0
	for _, f := range s.flows {
		if rate := f.window.rate() * f.weight; f.gauge.fits <= 0 && rate > negligible {
			sum += rate
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// isWatched reports whether a source has clients that are connected, or on their
// way back.
func (s *source) isWatched(now time.Time, interval time.Duration) bool {
	return !s.watched.IsZero() && now.Sub(s.watched) <= scale(interval, graceIntervals)
}

// longestWindow is the largest length of windows that count for the present landed load. A few
// clients with long periods of their own must not make the whole source look old; if all have
// them, there are no others.
func (s *source) longestWindow(now time.Time, interval time.Duration) time.Duration {
	usual := 2 * interval
	longest := time.Duration(0)
	for _, f := range s.flows {
		if _, fresh := f.trust(now, interval); fresh {
			if f.window.length <= usual {
				return usual
			}
			longest = max(longest, f.window.length)
		}
	}
	return longest
}

// measure sums a source over its streams, then smooths the sum.
func (s *source) measure(wall time.Duration, sites *siteSums, rest *others) (l SourceLoad, live float64) {
	now, interval := rest.now, rest.interval
	l.Source = s.locality
	var news, windows time.Duration
	fading, counted, landing, claimed := false, 0, 0, claimed{rest: rest}
	longest := s.longestWindow(now, interval)
	for _, f := range s.flows {
		trust, fresh := f.trust(now, interval)
		fading = fading || trust < 1
		news += min(f.news, scale(interval, holdIntervals))
		f.news = 0
		if trust == 0 {
			continue
		}
		counted++
		weight := trust * f.weight
		rate := f.window.rate() * weight
		claimed.add(f, trust)
		l.count(&f.window, weight)
		l.Clients = addClient(l.Clients, f.stream.node.Cluster, rate, rest.isService)
		sites.add(&f.window, weight)
		if f.weight < 1 {
			l.Capped++
		}
		if f.stream.closed.IsZero() {
			live += rate
		}
		if !fresh {
			l.hold(rate, f.missing(now, interval))
			continue
		}
		l.Nodes++
		l.fresh += rate
		if f.window.length <= longest {
			windows += f.window.length
			landing++
			l.land(f, len(s.means))
		}
	}
	if counted > 0 {
		news /= time.Duration(counted)
	}
	if landing > 0 {
		l.Window = windows / time.Duration(landing)
	}
	s.stand(l.Raw, now, wall, interval)
	s.follow(l.Raw, l.Errors, l.Drop, news, wall, interval, now, fading || len(s.flows) == 0)
	l.Demand, l.Variability = s.demand, s.variability.seen
	l.Unproven = s.prove(l.Demand, l.Raw, claimed.unproven(), l.Errors, wall, interval)
	s.learn(l.Landed, news, interval)
	l.newest.count(l.Landed, news)
	for i := range l.Landed {
		m := s.mean(l.Landed[i].Locality)
		l.Landed[i].InProgress, l.Landed[i].MeanIssued = m.inProgress, m.issued
	}
	return l, live
}

// stand follows the load of the known clients of a source. The load of known clients that leave
// is kept for their replacements, as long as any client sends it. Strangers are no known clients:
// they may send the missing part of this load, and would add that to it each time it varies.
func (s *source) stand(raw float64, now time.Time, wall, interval time.Duration) {
	s.known, s.knownProven = 0, 0
	for _, f := range s.flows {
		if !f.stranger && !f.newcomer(now, interval) {
			s.known += f.counted(now, interval)
			s.knownProven += f.vouched(now, interval)
		}
	}
	fade := math.Exp(-wall.Seconds() / (replacedTimes * interval.Seconds()))
	s.standing = max(s.known, fade*s.standing, min(s.standing, raw), s.saved)
	s.vouched = max(s.knownProven, fade*s.vouched, min(s.vouched, raw), s.savedProven())
}

// standIn uses a source's last reported load instead of missing reports: if most of its streams
// owe them, or if no stream is left to send them though clients are connected. Saved demand that
// is awaited has rules of its own; see cover.
func (s *source) standIn(l *SourceLoad, now time.Time, interval time.Duration) {
	if l.Nodes > 0 && 2*l.Stale <= l.Raw {
		heard := held{demand: min(l.Demand, l.Raw), unproven: l.Unproven}
		if len(s.lost) > 0 && s.kept.demand > heard.demand {
			heard = s.kept // an outage takes streams one after the other
		}
		s.kept, s.silent = heard, false
		return
	}
	if s.silent = s.isWatched(now, interval); !s.silent {
		s.kept.demand = min(s.kept.demand, s.saved) // which fades if no client comes
		return
	}
	s.silentAt = now
	if s.kept.demand < negligible {
		return
	}
	l.Stale = max(l.Stale, s.kept.demand-l.fresh)
	if !s.service.awaiting {
		l.raise(s.kept)
		l.Saved, s.demand, s.unproven = s.kept.demand, l.Demand, max(s.unproven, l.Unproven)
	}
}
