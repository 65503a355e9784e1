package plan

import (
	"time"

	"github.com/isobar-xds/isobar/internal/load"
)

// DegradationLevel is how degraded a service is because an input of its
// decisions is missing. It goes down at once and comes up a level a tick.
type DegradationLevel string

// The levels.
const (
	LevelFresh    DegradationLevel = "fresh"
	LevelCautious DegradationLevel = "cautious" // shares move at half the pace
	LevelHeld     DegradationLevel = "held"     // weights are held; changes of health and topology go out
	LevelDecaying DegradationLevel = "decaying" // shares move slowly towards a split by capacity
	LevelAbsent   DegradationLevel = "absent"   // there is no such input; nothing to wait for
)

// degradationLevels lists them, from the top.
func degradationLevels() []DegradationLevel {
	return []DegradationLevel{LevelFresh, LevelCautious, LevelHeld, LevelDecaying, LevelAbsent}
}

// depth is the number of the level from the top; absent binds nothing.
func (r DegradationLevel) depth() int {
	switch r {
	case LevelCautious:
		return 1
	case LevelHeld:
		return 2
	case LevelDecaying:
		return 3
	case LevelFresh, LevelAbsent:
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

// Steps are the ages at which an input takes a service down a level; 0 = never.
type Steps struct {
	Cautious time.Duration // Some reaches it
	Hold     time.Duration // Most does
	Decay    time.Duration // Most does
}

// Degradation is the steps of every input.
type Degradation struct {
	Reports, Health, Topology Steps
}

// Defaults of a Degradation, in report intervals.
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
func (l Degradation) Complete(interval time.Duration) Degradation {
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

// Of returns the steps of an input.
func (l Degradation) Of(kind InputKind) Steps {
	switch kind {
	case InputHealth:
		return l.Health
	case InputTopology:
		return l.Topology
	case InputReports:
	}
	return l.Reports
}

// Level returns the level at which an input of that age is.
func (s Steps) Level(a load.Age) DegradationLevel {
	switch {
	case s.Decay > 0 && a.Most >= s.Decay:
		return LevelDecaying
	case s.Hold > 0 && a.Most >= s.Hold:
		return LevelHeld
	case s.Cautious > 0 && a.Some >= s.Cautious:
		return LevelCautious
	}
	return LevelFresh
}

// climb takes a service from the level before towards the one that its input is
// on now: down at once, up a level at a time, so that what comes back is believed
// no faster than it was doubted.
func climb(before, now DegradationLevel) DegradationLevel {
	if now == LevelAbsent || before.depth()-1 <= now.depth() {
		return now
	}
	return degradationLevels()[before.depth()-1]
}
