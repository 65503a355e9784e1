package load

import (
	"math"
	"time"
)

// Drops harm everybody, so that only demand that is proven raises them: what clients
// with a history send, up to what they are known to send, or to twice what the others
// of their source do. Growth that comes with failing requests may be retries. Demand that
// was proven stays so for a while, also when others take the place of its clients.
const (
	proofSlack  = 1.25 // times what a client is known to send
	provenTimes = 24.0 // time constant with which proven demand is forgotten, intervals
	calmTimes   = 12.0 // smoothing of demand that grows while requests fail, intervals
)

// learnProof follows what counts of a client. Once it was compared with others, it grows
// by patience a window.
func (f *flow) learnProof() {
	counts := f.window.rate() * f.weight
	if f.proof == 0 {
		f.proof = counts
	}
	step := (counts - f.proof) / f.experience()
	if f.compared {
		step = min(step, patience*f.proof)
	}
	f.proof += step
}

// others compares the clients of a service at a snapshot, once somebody asks.
type others struct {
	table   *Table
	service *service
	now     time.Time
	usual   *usual
}

func (o *others) like() *usual {
	if o.usual == nil {
		u := o.table.usualOf(o.service, o.now)
		o.usual = &u
	}
	return o.usual
}

// unproven is how much of what counts of a client raises no drop, requests/s.
func (o *others) unproven(f *flow) float64 {
	counts := f.window.rate() * f.weight
	if f.newcomer(o.now, o.table.interval) || f.busy < guardWindows {
		return counts
	}
	if counts <= proofSlack*f.proof {
		return 0
	}
	u := o.like()
	if !u.known {
		return 0
	}
	return max(0, counts-max(alikeness*u.of(f.source), proofSlack*u.surge*f.proof))
}

// prove tells how much of a source's demand raises no drop. raw is what counts of its
// clients, of which new is unproven.
func (s *source) prove(demand, raw, unproven, errors float64, wall, interval time.Duration) float64 {
	failing := errors-s.baseErrors > usualErrors*raw
	if grown := min(raw-s.calm, errors-s.baseErrors); failing && s.calm > tinyBase*raw && grown > 0 {
		unproven += grown
		s.calm += (raw - s.calm) * gain(wall, calmTimes, interval)
	} else {
		s.calm = raw
	}
	kept := min(demand, max(s.saved, s.proven*math.Exp(-wall.Seconds()/(provenTimes*interval.Seconds()))))
	// Demand is smoothed, and falls slowly when who made it is gone. What clients send
	// now, and have proven, is proven at once.
	left := min(s.unproven+(unproven-s.unproven)*gain(wall, 2*fallIntervals, interval), demand-(raw-unproven))
	s.unproven = max(unproven, left)
	unproven = max(0, min(s.unproven, demand-kept))
	s.proven = demand - unproven
	return unproven
}
