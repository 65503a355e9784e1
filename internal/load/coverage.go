package load

import "time"

const (
	enoughCoverage = 0.8 // share of the known demand that must have reported
	herd           = 3   // streams lost at once that look like a reconnect of many
	// silentStart is how long demand from before a restart stands when no client
	// opens a load report stream at all: the longest that gRPC waits between two
	// attempts to connect. After it the saved demand fades as held rates do.
	silentStart = 2 * time.Minute
)

// arrivals are when clients of this process came.
type arrivals struct {
	started     time.Time
	firstStream time.Time // when the first stream of this process counted; zero before
	firstReport time.Time
}

// coverage judges at one time how much of the known demand is heard of.
type coverage struct {
	arrivals

	now      time.Time
	wall     time.Duration // since the last time
	interval time.Duration
}

// judge determines which part of the known demand is reported, and uses remembered demand for the
// rest.
//
// After a restart each source's demand is the larger of the remembered and the reported demand,
// until clients of 80% of it have reported or three intervals have passed since the first stream;
// then only the reported demand counts. The same holds when many streams of a running process are
// lost at once, counted from when each closed.
func (c *coverage) judge(svc *service, loads []SourceLoad, live []float64) (coverage float64, covered bool) {
	if svc.awaiting {
		c.fade(svc)
		if c.awaited() {
			coverage, covered = c.judgeSaved(svc, loads)
			return coverage, covered || c.faded() > 0
		}
		svc.awaiting = false
		for _, src := range svc.sources {
			src.saved = 0
		}
	}
	return c.judgeLost(svc, loads, live)
}

// faded is for how long demand has been fading that no client came back to
// confirm.
func (c *coverage) faded() time.Duration {
	if !c.firstStream.IsZero() {
		return 0
	}
	return max(0, c.now.Sub(c.started)-silentStart)
}

// fade ages saved demand whose clients do not return. Without this a fleet that reports no load
// would be held for ever.
func (c *coverage) fade(svc *service) {
	step := min(c.wall, c.faded())
	if step <= 0 {
		return
	}
	left := 0.0
	for _, src := range svc.sources {
		if !src.isWatched(c.now, c.interval) { // else its clients are there, and only tell nothing
			src.saved *= 1 - gain(step, 1, c.interval)
			if src.saved < negligible {
				src.saved = 0
			}
		}
		left += src.saved
	}
	svc.awaiting = left > 0
}

// awaited reports whether clients known from before may still be coming back.
func (c *coverage) awaited() bool {
	if c.firstStream.IsZero() {
		return true
	}
	since := c.now.Sub(c.firstStream)
	if c.firstReport.IsZero() {
		// Streams stand, and nothing has come through at all: reports are slow.
		return since < scale(c.interval, 2*graceIntervals)
	}
	return since < scale(c.interval, graceIntervals)
}

func (c *coverage) judgeSaved(svc *service, loads []SourceLoad) (coverage float64, covered bool) {
	known, seen := 0.0, 0.0
	for i, src := range svc.sources {
		known += src.saved
		seen += min(src.saved, loads[i].Raw)
	}
	if known <= 0 {
		return 1, true
	}
	coverage = seen / known
	covered = coverage >= enoughCoverage
	for i, src := range svc.sources {
		// Once enough is back, sources that are not are still waited for.
		if covered && loads[i].Raw >= enoughCoverage*src.saved {
			continue
		}
		loads[i].Saved = src.saved
		loads[i].raise(held{demand: src.saved, unproven: src.saved * src.doubted})
	}
	return coverage, covered
}

// judgeLost is judge for a running process.
func (c *coverage) judgeLost(svc *service, loads []SourceLoad, live []float64) (coverage float64, covered bool) {
	coverage = svc.presence(live)
	covered = coverage >= enoughCoverage
	switch {
	case covered:
		svc.heldSince = time.Time{}
	case svc.heldSince.IsZero():
		svc.heldSince = c.now
	case c.now.Sub(svc.heldSince) >= scale(c.interval, graceIntervals):
		svc.giveUp(live)
		coverage, covered, svc.heldSince = 1, true, time.Time{}
	}
	for i, src := range svc.sources {
		switch {
		case !covered && len(src.lost) > 0:
			loads[i].Saved = src.memory.demand
			loads[i].raise(src.memory)
		case len(src.lost) == 0:
			src.memory = held{demand: src.demand, unproven: loads[i].Unproven}
		default:
			src.memory.demand = max(src.memory.demand, live[i])
		}
	}
	return coverage, covered
}

// presence is the share of the remembered demand whose streams are there; 1
// unless many were lost at once.
func (s *service) presence(live []float64) float64 {
	streams := 0
	missing, present := 0.0, 0.0
	for i, src := range s.sources {
		lost := 0.0
		for _, l := range src.lost {
			lost += l.rate
		}
		streams += len(src.lost)
		missing += min(lost, max(0, src.memory.demand-live[i]))
		present += live[i]
	}
	if streams < herd || missing <= 0 {
		return 1
	}
	return present / (present + missing)
}

// giveUp accepts the reported demand as all demand. If clients come and go all the time, some are
// always missing.
func (s *service) giveUp(live []float64) {
	for i, src := range s.sources {
		src.lost, src.memory.demand = nil, live[i]
	}
}
