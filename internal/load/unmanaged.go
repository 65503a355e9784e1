package load

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// tally is a source's open window over all localities, in requests.
type tally struct {
	seconds, total float64
	failed         float64
	sites          []siteTally // sorted by locality
}

type siteTally struct {
	locality         isobar.Locality
	issued, expected float64
	slack            float64 // by how much expected may be off, because shares changed
}

func (t *tally) site(l isobar.Locality) *siteTally {
	i, found := slices.BinarySearchFunc(t.sites, l, func(s siteTally, l isobar.Locality) int { return s.locality.Compare(l) })
	if !found {
		t.sites = slices.Insert(t.sites, i, siteTally{locality: l})
	}
	return &t.sites[i]
}

// add adds one round of windows, unless the shares changed so much in it that
// they say little.
func (t *tally) add(l *SourceLoad, spans []span, seconds, total float64) {
	for _, x := range spans {
		if x.high-x.low > steadyPoints {
			return
		}
	}
	t.seconds += seconds
	t.total += total
	t.failed += l.Errors * seconds
	for i := range l.Landed {
		if x := &l.Landed[i]; x.Issued > 0 { // so there are no more localities than requests
			t.site(x.Locality).issued += x.Issued * seconds
		}
	}
	for _, x := range spans {
		site := t.site(x.locality)
		site.expected += x.mean * total
		site.slack += max(x.high-x.mean, x.mean-x.low) * total
	}
}

const (
	overPlan     = 0.10 // of plan, beyond which observed requests count as unmanaged load
	overShare    = 0.01 // of the source's traffic, the same
	sigmas       = 4.0  // of a Poisson count, the same: chance is no evidence
	offPoints    = 0.10 // of the source's traffic, beyond which it deviates
	offWindows   = 3    // windows in a row that make a deviation
	steadyPoints = 0.05 // of the source's traffic, by which a share may change in a round that is compared
	failsOver    = 0.05 // of the source's requests: where more fail, clients may go elsewhere by themselves
	followShare  = 0.05 // planned shares that must be as planned to tell the rest by
)

// compare judges the tally: which localities get more than planned, and by how
// much the shares differ.
func (s *sourceEvidence) compare() {
	if s.tally.failed > failsOver*s.tally.total {
		s.off = 0 // clients avoid failing endpoints by themselves: that is no deviation
		return
	}
	s.deviate()
	// Traffic that a failing locality does not take lands elsewhere: that is
	// failover, and the plan of the others grows by it.
	left := 1.0
	for i := range s.tally.sites {
		if s.lost(s.tally.sites[i].locality) {
			left -= s.tally.sites[i].expected / s.tally.total
		}
	}
	if left < 1-barShare {
		return // too many requests fail to say what the rest should be
	}
	followed, obedient := 0.0, 0.0
	over := make([]bool, len(s.tally.sites))
	for i := range s.tally.sites {
		t := &s.tally.sites[i]
		expected := t.expected / left
		limit := max(overPlan*expected, overShare*s.tally.total, sigmas*math.Sqrt(max(1, expected)))
		switch {
		case s.lost(t.locality):
		case t.issued-expected-t.slack > limit:
			over[i] = true
		default:
			followed += expected / s.tally.total
			obedient += t.issued
		}
	}
	for i := range s.tally.sites {
		t := &s.tally.sites[i]
		expected := t.expected / left
		if followed >= followShare {
			// The part of requests that follow the shares is known from the localities that get
			// their planned requests. The same part is assumed here.
			expected = min(expected, obedient/followed*expected/s.tally.total)
		}
		p := s.find(t.locality)
		if p == nil && over[i] {
			p = s.stray(t.locality)
		}
		if p != nil {
			p.weigh(over[i], (t.issued-expected)/s.tally.seconds)
		}
	}
}

// mostStray is about how many localities that are not of the service a source has evidence: clients may name
// any.
const mostStray = 16

// stray makes evidence about a locality that is not of the service, where much lands; nil = there is enough.
func (s *sourceEvidence) stray(l isobar.Locality) *pair {
	n := 0
	for _, p := range s.pairs {
		if p.stray {
			n++
		}
	}
	if n >= mostStray {
		return nil
	}
	p := s.pair(l)
	p.stray, p.told = true, s.until
	return p
}

// lost reports whether the planned requests do not arrive in a locality.
func (s *sourceEvidence) lost(l isobar.Locality) bool {
	p := s.find(l)
	return p != nil && (p.failing() || !p.barred.IsZero())
}

// loses reports whether the planned requests do not arrive in a locality: clients then avoid it
// by themselves.
func (s *sourceEvidence) loses() bool {
	return slices.ContainsFunc(s.pairs, func(p *pair) bool { return p.share > 0 && s.lost(p.locality) })
}

// weigh notes whether a pair lands above plan, and by how much (requests/s).
func (p *pair) weigh(over bool, rate float64) {
	if !over {
		p.over, p.under = 0, p.under+1
		if p.under >= verdictWindows {
			p.unmanaged = 0
		}
		return
	}
	p.over, p.under = p.over+1, 0
	switch {
	case p.over < verdictWindows && p.unmanaged == 0:
	case p.unmanaged == 0:
		p.unmanaged = rate
	default:
		p.unmanaged += (rate - p.unmanaged) / 2
	}
}

// deviate counts windows in which shares are off plan.
func (s *sourceEvidence) deviate() {
	worst, off := 0.0, false
	for i := range s.tally.sites {
		t := &s.tally.sites[i]
		planned := t.expected / s.tally.total
		diff := max(0, math.Abs(t.issued-t.expected)-t.slack) / s.tally.total
		chance := sigmas * math.Sqrt(planned*(1-planned)/s.tally.total)
		worst = max(worst, diff)
		off = off || (diff > offPoints && diff > chance)
	}
	if !off {
		s.off = 0
		return
	}
	s.off++
	s.points = 100 * worst
	s.realised = s.realised[:0]
	for i := range s.tally.sites {
		t := &s.tally.sites[i]
		s.realised = append(s.realised, realised{locality: t.locality, share: t.issued / s.tally.total, planned: t.expected / s.tally.total})
	}
}

// excess is utilization that reported load does not explain.
type excess struct {
	locality isobar.Locality
	windows  int
	rate     float64 // requests/s, of the utilization that is not explained
	least    float64 // up to which it says nothing, requests/s
}

// told is the part that counts: 0 at the bound, all from three times the bound on, and linear
// between. A step could end the load that caused it.
func (e *excess) told() float64 { return min(e.rate, unreportedRamp*(e.rate-e.least)) }

// unreportedGain is the part of the difference by which the estimate of unreported load changes
// in an interval. If the declared capacity is wrong, steering load away because of the estimate
// also removes the evidence for it: a quick estimate would oscillate.
const (
	unreportedGain = 0.1
	unreportedFall = 0.05
	unreportedRamp = 1.5
)

func applicationUtilization(s *SiteLoad) float64 {
	for _, m := range s.Metrics {
		if m.Name == MetricApplication {
			return m.Mean
		}
	}
	return 0
}

// Round compares the requests of a source's clients with their shares, in windows that began
// after enough of the clients had acknowledged these: the compared requests, and those of them
// that landed elsewhere. Differences within chance (one standard deviation) and within changes of
// the shares in a window do not count as elsewhere. Windows in which a share changed by more than
// 5 points are not in it at all.
type Round struct {
	Source   isobar.Locality
	Requests float64 // at least 50
	Off      float64 // of these; at most Requests
}

// round returns the tally of a source as a Round.
func (t *tally) round(source isobar.Locality) Round {
	out := Round{Source: source, Requests: t.total}
	for i := range t.sites {
		x := &t.sites[i]
		share := min(1, x.expected/t.total)
		chance := math.Sqrt(t.total * share * (1 - share))
		// Each request that is elsewhere is missing in one place and too much in
		// another.
		out.Off += max(0, math.Abs(x.issued-x.expected)-x.slack-chance) / 2
	}
	out.Off = min(out.Off, out.Requests)
	return out
}
