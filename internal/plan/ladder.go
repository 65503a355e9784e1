package plan

import "time"

// Rung is how far a service has gone down the ladder because an input of its
// decisions is missing. It goes down at once and comes up a rung a tick.
type Rung string

// The rungs.
const (
	RungFresh    Rung = "fresh"
	RungCautious Rung = "cautious" // shares move at half the pace
	RungHeld     Rung = "held"     // weights are held; changes of health and topology go out
	RungDecaying Rung = "decaying" // shares move slowly towards a split by capacity
	RungAbsent   Rung = "absent"   // there is no such input; nothing to wait for
)

// Rungs lists them, from the top.
func Rungs() []Rung { return []Rung{RungFresh, RungCautious, RungHeld, RungDecaying, RungAbsent} }

// depth is the number of the rung from the top; absent binds nothing.
func (r Rung) depth() int {
	switch r {
	case RungCautious:
		return 1
	case RungHeld:
		return 2
	case RungDecaying:
		return 3
	case RungFresh, RungAbsent:
	}
	return 0
}

// InputKind is an input of decisions that may be missing.
type InputKind string

// The inputs.
const (
	InputReports  InputKind = "reports"  // load reports of clients
	InputHealth   InputKind = "health"   // verdicts of health checkers
	InputTopology InputKind = "topology" // what another control plane lists
)

// Inputs lists them.
func Inputs() []InputKind { return []InputKind{InputReports, InputHealth, InputTopology} }

// Age is for how long too much of an input has been missing; zero while it is
// not.
type Age struct {
	Some time.Duration // more than a fifth of it is
	Most time.Duration // more than half of it is
}

// Steps are the ages at which an input takes a service down a rung; 0 = never.
type Steps struct {
	Cautious time.Duration // Some reaches it
	Hold     time.Duration // Most does
	Decay    time.Duration // Most does
}

// Ladder is the steps of every input.
type Ladder struct {
	Reports, Health, Topology Steps
}

// Defaults of a Ladder, in report intervals.
const (
	cautiousReports = 1
	holdReports     = 3
	decayReports    = 120
	cautiousHealth  = 6
	cautiousSource  = 12
)

// Forever stands for a step that is never taken, where 0 means the default.
const Forever = time.Duration(-1)

// Complete fills in defaults, given the interval at which clients and checkers
// report. Only load reports hold weights by default: without them nobody knows
// where load is, but old verdicts and endpoints are better followed with the
// load of now than left alone with that of then.
func (l Ladder) Complete(interval time.Duration) Ladder {
	fill := func(d *time.Duration, def time.Duration) {
		switch {
		case *d < 0:
			*d = 0
		case *d == 0:
			*d = def
		}
	}
	fill(&l.Reports.Cautious, cautiousReports*interval)
	fill(&l.Reports.Hold, holdReports*interval)
	fill(&l.Reports.Decay, decayReports*interval)
	fill(&l.Health.Cautious, cautiousHealth*interval)
	fill(&l.Topology.Cautious, cautiousSource*interval)
	for _, s := range []*Steps{&l.Health, &l.Topology} {
		fill(&s.Hold, 0)
		fill(&s.Decay, 0)
	}
	return l
}

// Of gives the steps of an input.
func (l Ladder) Of(kind InputKind) Steps {
	switch kind {
	case InputHealth:
		return l.Health
	case InputTopology:
		return l.Topology
	case InputReports:
	}
	return l.Reports
}

// Rung gives the rung on which an input of that age is.
func (s Steps) Rung(a Age) Rung {
	switch {
	case s.Decay > 0 && a.Most >= s.Decay:
		return RungDecaying
	case s.Hold > 0 && a.Most >= s.Hold:
		return RungHeld
	case s.Cautious > 0 && a.Some >= s.Cautious:
		return RungCautious
	}
	return RungFresh
}

// climb takes a service from the rung before towards the one that its input is
// on now: down at once, up a rung at a time, so that what comes back is believed
// no faster than it was doubted.
func climb(before, now Rung) Rung {
	if now == RungAbsent || before.depth()-1 <= now.depth() {
		return now
	}
	return Rungs()[before.depth()-1]
}
