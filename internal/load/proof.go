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
	seniority   = 120  // report intervals from which on what a client sends speaks for others of its account
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
	if counts <= proofSlack*f.proof {
		f.crowded = false // the client has claimed it for long enough
	}
}

// others are what the clients of a service are like at a snapshot, once somebody asks.
type others struct {
	comparison

	known *usual
}

func (o *others) like() *usual {
	if o.known == nil {
		u := o.usual()
		o.known = &u
	}
	return o.known
}

// unproven is how much of what counts of a client raises no drop, requests/s.
func (o *others) unproven(f *flow) float64 {
	counts := f.window.rate() * f.weight
	if f.newcomer(o.now, o.interval) || f.busy < guardWindows {
		return counts
	}
	if counts <= proofSlack*f.proof {
		return 0
	}
	u := o.like()
	if !u.known {
		return 0
	}
	proven := proofSlack * u.surge * f.proof
	if !f.crowded {
		proven = max(proven, alikeness*u.of(f.source))
	}
	return max(0, counts-proven)
}

// admit bounds what newcomers of one identity or address together may prove within
// seniority report intervals: as much as the clients with a long history send, or what
// counts of one newcomer. So a fleet may double under one identity, but an address that
// invents many usual clients proves little by it: what they claim beyond that is proven at
// the pace of learnProof, a hundredth a report.
func (c *comparison) admit(claims []claim) {
	senior, admitted := 0.0, map[string]float64{}
	for _, src := range c.service.sources {
		senior += src.saved
		for _, f := range src.flows {
			switch young := c.now.Sub(f.began) < scale(c.interval, seniority); {
			case f.busy == 0 || f.stranger || f.newcomer(c.now, c.interval):
			case f.compared && young:
				admitted[f.stream.account] += f.admitted
			default:
				senior += min(f.window.rate()*f.weight, proofSlack*f.proof)
			}
		}
	}
	most, wanted := map[string]float64{}, map[string]float64{}
	for i := range claims {
		x, account := &claims[i], claims[i].flow.stream.account
		x.admitted = min(x.rate, x.like)
		most[account] = max(most[account], x.like, senior)
		wanted[account] += max(0, x.admitted-x.granted)
	}
	for i := range claims {
		x, account := &claims[i], claims[i].flow.stream.account
		if left := most[account] - admitted[account]; account != "" && wanted[account] > left {
			x.admitted *= max(0, left) / wanted[account]
		}
	}
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
