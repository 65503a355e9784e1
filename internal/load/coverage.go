package load

import (
	"slices"
	"time"
)

const (
	enoughCoverage = 0.8 // share of the known demand that must have reported
	herd           = 3   // streams lost at once that look like a reconnect of many
	unlistedMerges = 100 // merges without a word of an open stream, after which it is gone
	// silentStart is how long demand from before a restart stands when no client
	// opens a load report stream at all: the longest that gRPC waits between two
	// attempts to connect. After it the saved demand fades as held rates do.
	silentStart = 2 * time.Minute
)

// cover judges how much of the known demand is heard of, and lets remembered
// demand stand in for what is not.
//
// After a restart each source's demand is the larger of what is remembered and
// what is seen, until clients of 80% of it have reported or three intervals
// have passed since the first stream; then what is seen counts alone. The same
// holds when many streams of a running process are lost at once, counted from
// when each closed.
func (t *Table) cover(svc *service, loads []SourceLoad, live []float64, now time.Time, wall time.Duration) (coverage float64, covered bool) {
	if svc.awaiting {
		t.fade(svc, now, wall)
		if t.awaited(now) {
			coverage, covered = t.coverSaved(svc, loads)
			return coverage, covered || t.faded(now) > 0
		}
		svc.awaiting = false
		for _, src := range svc.sources {
			src.saved = 0
		}
	}
	return t.coverLost(svc, loads, live, now)
}

// faded is for how long demand has been fading that no client came back to
// confirm.
func (t *Table) faded(now time.Time) time.Duration {
	if !t.firstStream.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.started)-silentStart)
}

// fade lets saved demand go that nobody comes back for. Without this a fleet
// that reports no load would be held for ever.
func (t *Table) fade(svc *service, now time.Time, wall time.Duration) {
	step := min(wall, t.faded(now))
	if step <= 0 {
		return
	}
	left := 0.0
	for _, src := range svc.sources {
		if !src.isWatched(now, t.interval) { // else its clients are there, and only tell nothing
			src.saved *= 1 - gain(step, 1, t.interval)
			if src.saved < negligible {
				src.saved = 0
			}
		}
		left += src.saved
	}
	svc.awaiting = left > 0
}

// awaited reports whether clients known from before may still be coming back.
func (t *Table) awaited(now time.Time) bool {
	if t.firstStream.IsZero() {
		return true
	}
	since := now.Sub(t.firstStream)
	if t.firstReport.IsZero() {
		// Streams stand, and nothing has come through at all: reports are slow.
		return since < scale(t.interval, 2*graceIntervals)
	}
	return since < scale(t.interval, graceIntervals)
}

func (t *Table) coverSaved(svc *service, loads []SourceLoad) (coverage float64, covered bool) {
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
		loads[i].Demand = max(src.saved, loads[i].Demand)
	}
	return coverage, covered
}

// coverLost is cover for a running process.
func (t *Table) coverLost(svc *service, loads []SourceLoad, live []float64, now time.Time) (coverage float64, covered bool) {
	coverage = svc.presence(live)
	covered = coverage >= enoughCoverage
	switch {
	case covered:
		svc.heldSince = time.Time{}
	case svc.heldSince.IsZero():
		svc.heldSince = now
	case now.Sub(svc.heldSince) >= scale(t.interval, graceIntervals):
		svc.giveUp(live)
		coverage, covered, svc.heldSince = 1, true, time.Time{}
	}
	for i, src := range svc.sources {
		switch {
		case !covered && len(src.lost) > 0:
			loads[i].Saved = src.memory
			loads[i].Demand = max(src.memory, loads[i].Demand)
		case len(src.lost) == 0:
			src.memory = src.demand
		default:
			src.memory = max(src.memory, live[i])
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
		missing += min(lost, max(0, src.memory-live[i]))
		present += live[i]
	}
	if streams < herd || missing <= 0 {
		return 1
	}
	return present / (present + missing)
}

// giveUp takes what is there for all that there is. Where clients come and go
// all the time, some are always missing.
func (s *service) giveUp(live []float64) {
	for i, src := range s.sources {
		src.lost, src.memory = nil, live[i]
	}
}

// Returned returns what fraction of the clients that are connected have reported, 0 to 1,
// for a table that knows nothing of an earlier process. It is 0 until three intervals have
// passed since the first client came back: others are about to.
func (t *Table) Returned(now time.Time) float64 {
	if t.firstStream.IsZero() || now.Sub(t.firstStream) < scale(t.interval, graceIntervals) {
		return 0
	}
	open, reported := 0, 0
	for _, s := range t.streams {
		if !s.closed.IsZero() {
			continue
		}
		open++
		if !s.heard.IsZero() {
			reported++
		}
	}
	if open == 0 {
		return 0
	}
	return float64(reported) / float64(open)
}

// lose takes note of streams that have closed since the last snapshot, and
// forgets losses that are too old to come back.
func (t *Table) lose(now time.Time) {
	old := now.Add(-scale(t.interval, graceIntervals))
	for _, name := range t.names {
		for _, src := range t.services[name].sources {
			src.lost = slices.DeleteFunc(src.lost, func(l loss) bool {
				if l.at.After(old) {
					return false
				}
				src.memory = max(0, src.memory-l.rate)
				return true
			})
		}
	}
	for _, s := range t.streams {
		if s.closed.IsZero() || s.counted || !s.closed.After(old) {
			continue
		}
		s.counted = true
		for _, f := range s.flows {
			if rate := f.window.rate() * f.weight; rate >= negligible {
				f.source.lost = append(f.source.lost, loss{stream: s.id, at: s.closed, rate: rate})
			}
		}
	}
}

// forget drops what can no longer matter: streams closed for long, flows that
// faded or went idle, sources and services without any.
func (t *Table) forget(now time.Time) {
	hold := scale(t.interval, holdIntervals)
	t.streams = slices.DeleteFunc(t.streams, func(s *stream) bool {
		if s.closed.IsZero() {
			// Its end may have been lost with an overfull collector.
			return len(s.flows) == 0 && t.merges-s.listed > unlistedMerges
		}
		if now.Sub(s.closed) <= hold {
			return false
		}
		for _, f := range s.flows {
			f.source.remove(f)
		}
		s.flows = nil
		return true
	})
	for _, s := range t.streams {
		if s.closed.IsZero() {
			s.flows = slices.DeleteFunc(s.flows, func(f *flow) bool { return t.idle(f, now) })
		}
	}
	t.names = slices.DeleteFunc(t.names, func(name string) bool {
		svc := t.services[name]
		svc.sources = slices.DeleteFunc(svc.sources, func(s *source) bool {
			return len(s.flows) == 0 && len(s.lost) == 0 && s.saved == 0 && s.demand < negligible
		})
		if len(svc.sources) > 0 {
			return false
		}
		delete(t.services, name)
		return true
	})
}

// idle removes a flow that no longer counts, and tells so.
func (t *Table) idle(f *flow, now time.Time) bool {
	trust, _ := f.trust(now, t.interval)
	if trust > 0 {
		return false
	}
	f.source.remove(f)
	return true
}
