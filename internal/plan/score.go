package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Seen holds what plans predicted of a service against what was then seen, over
// some time. All but the times are requests.
type Seen struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Sent float64   `json:"sent"` // by all sources, judged or not

	// Judged were held against the shares that were served, as [load.Round] has
	// it; Elsewhere landed in other localities than these say.
	Judged    float64 `json:"judged"`
	Elsewhere float64 `json:"elsewhere"`

	// Loaded landed where the endpoints report utilization (ORCA) and the plan
	// knows a capacity; Misjudged is the same times the difference between the
	// utilization that this load makes by that capacity and the reported one.
	Loaded    float64 `json:"loaded"`
	Misjudged float64 `json:"misjudged"`

	// Expected is what sources were expected to send, and Missed by how much
	// they sent more or less than a plan before said.
	Expected float64 `json:"expected"`
	Missed   float64 `json:"missed"`
}

// Adherence returns the share of the judged requests that landed as planned, 0 to 1;
// false if none were judged.
func (s *Seen) Adherence() (float64, bool) { return agreement(s.Elsewhere, s.Judged) }

// Utilization is 1 less the mean error of utilization, weighted by requests, 0
// to 1; false where none is reported, or no capacity is known.
func (s *Seen) Utilization() (float64, bool) { return agreement(s.Misjudged, s.Loaded) }

// Demand is 1 less the error of the forecast of each source's demand from one
// decision to the next, as a share of the demand, 0 to 1; false without any.
func (s *Seen) Demand() (float64, bool) { return agreement(s.Missed, s.Expected) }

func agreement(off, of float64) (float64, bool) {
	if of <= 0 {
		return 0, false
	}
	return clamp(1-off/of, 1), true
}

// Score is the least of Adherence and Utilization, and in mode observe of demand
// too: the worst is what is to be told. 0 to 1; false while nothing was judged.
// Later on the demand does not count: whether it surprises does not tell whether
// acting on it was right.
func (s *Seen) Score(mode isobar.Mode) (float64, bool) {
	score, ok := s.Adherence()
	if !ok {
		return 0, false
	}
	if u, ok := s.Utilization(); ok {
		score = min(score, u)
	}
	if d, ok := s.Demand(); ok && mode == isobar.ModeObserve {
		score = min(score, d)
	}
	return score, true
}

// add sums two stretches of time of which the second follows.
func (s *Seen) add(next *Seen) {
	if s.From.IsZero() {
		s.From = next.From
	}
	s.To = next.To
	s.Sent += next.Sent
	s.Judged += next.Judged
	s.Elsewhere += next.Elsewhere
	s.Loaded += next.Loaded
	s.Misjudged += next.Misjudged
	s.Expected += next.Expected
	s.Missed += next.Missed
}

// Rules of the score.
const (
	// scoreWindows is over how many windows the score is told.
	scoreWindows = 12
	// scoreLength is how long a window is at least; it goes on until it holds
	// scoreRequests judged requests, of sources that make up scoreCoverage of the
	// demand. One that does not come to that is thrown away.
	scoreLength   = 30 * time.Second
	scoreGiveUp   = 15 * time.Minute
	scoreRequests = 500.0
	scoreCoverage = 0.8
	// utilizationSlack is by how much utilization may differ without an error:
	// endpoints round it, and take it at other moments.
	utilizationSlack = 0.02
	// forecastSigmas is how much of the difference of two Poisson counts is chance.
	forecastSigmas = 2.0
	// scoreGap is the longest time between two decisions that counts in full.
	scoreGap = time.Minute
)

// Scores is what a service's predictions were worth recently. Immutable once it
// is part of a plan.
type Scores struct {
	Windows []Seen // oldest first, at most scoreWindows
	Open    Seen   // the window that is not full yet

	judged []isobar.Locality // sources that are judged in Open; sorted
	at     time.Time         // until when Open tells
}

// Sum adds up the windows; false when there is none.
func (s *Scores) Sum() (Seen, bool) {
	if s == nil || len(s.Windows) == 0 {
		return Seen{}, false
	}
	var out Seen
	for i := range s.Windows {
		out.add(&s.Windows[i])
	}
	return out, true
}

// follow adds a tick at which something was seen, and reports whether the open
// window holds enough to be judged.
func (s *Scores) follow(seen *Seen, rounds []load.Round, l *load.ServiceLoad) (full bool) {
	s.at = seen.To
	s.Open.add(seen)
	for _, r := range rounds {
		if i, found := slices.BinarySearchFunc(s.judged, r.Source, isobar.Locality.Compare); !found {
			s.judged = slices.Insert(slices.Clone(s.judged), i, r.Source)
		}
	}
	full = s.Open.Judged >= scoreRequests && s.coverage(l) >= scoreCoverage
	if !full && s.Open.To.Sub(s.Open.From) > scoreGiveUp {
		s.restart(seen.To)
	}
	return full
}

// restart forgets the open window.
func (s *Scores) restart(now time.Time) { s.Open, s.judged, s.at = Seen{}, nil, now }

// close puts the open window to the others.
func (s *Scores) close() {
	from := max(0, len(s.Windows)+1-scoreWindows)
	s.Windows = append(slices.Clone(s.Windows[from:]), s.Open)
	s.restart(s.at)
}

// coverage is the share of the demand whose sources are judged in the open window.
func (s *Scores) coverage(l *load.ServiceLoad) float64 {
	all, judged := 0.0, 0.0
	for i := range l.Sources {
		x := &l.Sources[i]
		all += x.Demand
		if _, found := slices.BinarySearchFunc(s.judged, x.Source, isobar.Locality.Compare); found {
			judged += x.Demand
		}
	}
	if all <= 0 {
		return 0
	}
	return judged / all
}

// seenOf holds the plan before, which was in force until now, against what came
// in since the last tick.
func seenOf(s *Service, since, now time.Time, l *load.ServiceLoad, rounds []load.Round) Seen {
	seconds := min(now.Sub(since), scoreGap).Seconds()
	out := Seen{From: since, To: now}
	for _, r := range rounds {
		out.Judged += r.Requests
		out.Elsewhere += r.Off
	}
	for i := range l.Sources {
		x := &l.Sources[i]
		out.Sent += x.Raw * seconds
		before := s.Load.Source(x.Source)
		if before == nil || x.Nodes == 0 || x.Held > 0 || before.Held > 0 || x.Window <= 0 {
			continue
		}
		chance := forecastSigmas * math.Sqrt(x.Raw/x.Window.Seconds())
		out.Expected += max(x.Raw, before.Demand) * seconds
		out.Missed += max(0, math.Abs(x.Raw-before.Demand)-chance) * seconds
	}
	for i := range l.Sites {
		x := &l.Sites[i]
		at := slices.IndexFunc(s.Sites, func(y assign.Site) bool { return y.Group.Locality == x.Locality })
		if at < 0 || x.Utilization <= 0 || !s.Site(at).hasCapacity() {
			continue
		}
		// What is reported can't tell load beyond what can be served.
		made := min(1, (x.Issued+s.Spec.Localities[at].UnmanagedLoad)/s.Sites[at].Capacity)
		off := max(0, math.Abs(made-min(1, x.Utilization))-utilizationSlack)
		out.Loaded += x.Issued * seconds
		out.Misjudged += x.Issued * off * seconds
	}
	return out
}

// score takes the scores of the plan before on by what was seen since, and the rollout
// with them. What comes in from too few clients is left out.
func score(in *Input, of, prev *Service) (*Scores, *Rollout) {
	if prev == nil {
		return nil, of.Rollout
	}
	if !in.Scoring || of.Load == nil || prev.Load == nil {
		return prev.Scores, of.Rollout
	}
	next := &Scores{at: in.Now}
	if prev.Scores != nil {
		*next = *prev.Scores
	}
	before := next.at
	if !of.Load.Covered || of.input(InputReports).Level != LevelFresh || !in.Now.After(before) {
		next.restart(in.Now)
		return next, of.Rollout.restartedGuard()
	}
	seen := seenOf(prev, before, in.Now, of.Load, of.Deviations.Rounds)
	full := next.follow(&seen, of.Deviations.Rounds, of.Load)
	return next, next.watch(of, prev, in.Now, in.Topology.Network, full)
}

// ScoreExplained shows how well predictions for a service agree with later observations. All parts
// are from 0 to 1, 1 = exactly as predicted.
type ScoreExplained struct {
	Score     float64 `json:"score"`     // the lowest of the parts that count
	Adherence float64 `json:"adherence"` // fraction of the requests that landed according to the served shares
	// Utilization is 1 minus the mean error of utilization; nil if none is reported, or no capacity
	// is known.
	Utilization *float64 `json:"utilization,omitempty"`
	// Demand is 1 minus the error of the forecast of demand. It counts only in mode observe.
	Demand   *float64  `json:"demand,omitempty"`
	Windows  int       `json:"windows"`  // number of windows that it is computed from
	Requests float64   `json:"requests"` // requests in these windows that were compared with the shares
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
}

// Explain returns how well what was predicted recently of a service in a mode agrees with
// what was then seen; nil while there is too little to tell.
func (s *Scores) Explain(mode isobar.Mode) *ScoreExplained {
	sum, ok := s.Sum()
	if !ok {
		return nil
	}
	out := &ScoreExplained{Windows: len(s.Windows), Requests: sum.Judged, From: sum.From, To: sum.To}
	out.Score, _ = sum.Score(mode)
	out.Adherence, _ = sum.Adherence()
	if u, ok := sum.Utilization(); ok {
		out.Utilization = &u
	}
	if d, ok := sum.Demand(); ok {
		out.Demand = &d
	}
	return out
}

// Score is the score that Explain tells; false where it tells nothing.
func (s *Scores) Score(mode isobar.Mode) (score float64, ok bool) {
	sum, ok := s.Sum()
	if ok {
		score, _ = sum.Score(mode)
	}
	return score, ok
}

// String says it in a line.
func (e *ScoreExplained) String() string {
	parts := []string{fmt.Sprintf("landing %.3f", e.Adherence)}
	if e.Utilization != nil {
		parts = append(parts, fmt.Sprintf("utilization %.3f", *e.Utilization))
	}
	if e.Demand != nil {
		parts = append(parts, fmt.Sprintf("demand %.3f", *e.Demand))
	}
	return fmt.Sprintf("%.3f over %s and %.0f requests (%s)", e.Score, e.To.Sub(e.From).Round(time.Second), e.Requests, strings.Join(parts, ", "))
}
