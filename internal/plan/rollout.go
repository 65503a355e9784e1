package plan

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
)

// Rollout says how far a service in mode auto has come, and what it takes to go
// on. It goes a step further after windows in a row whose score is good, and a
// step back as soon as one is bad, or as something gets worse than was predicted
// after a step; each step back doubles what the next step forward takes. Immutable
// once it is part of a plan.
type Rollout struct {
	Mode isobar.Mode `json:"mode"`           // that is served
	Good int         `json:"good,omitempty"` // windows in a row whose score speaks for a step forward

	// Failed counts steps back that were not made good for; Calm counts good
	// windows since the last of them, of which many make good for one.
	Failed int `json:"failed,omitempty"`
	Calm   int `json:"calm,omitempty"`

	// Trial is for how many windows more errors and load above the ceilings are
	// held against Before, what they were before the step.
	Trial  int        `json:"trial,omitempty"`
	Before Regression `json:"before,omitzero"`

	Stepped  time.Time `json:"stepped,omitzero"` // when the last step was taken
	Why      string    `json:"why,omitempty"`    // it was
	Back     bool      `json:"back,omitempty"`   // it was one back
	Promoted int       `json:"promoted,omitempty"`
	Demoted  int       `json:"demoted,omitempty"`

	bad    int             // ticks in a row at which the open window was bad
	open   regressionGuard // adds up
	newest Regression      // of the last stretch that was added up
}

// Rules of mode auto.
const (
	// trustDoublings bounds by how often steps back double the way forward.
	rolloutDoublings = 6
	// trustCalm is how many times the way forward of good windows makes good for
	// a step back.
	rolloutSteady = 8
	// scoreEarly is how long a window is at least that is bad already, and
	// scoreBad for how many ticks it has to be.
	scoreEarly = 10 * time.Second
	scoreBad   = 2
)

// needed is how many good windows in a row a step forward takes.
func (t *Rollout) needed(p isobar.Promotion) int {
	return p.Windows << min(t.Failed, rolloutDoublings)
}

// rolloutOf takes up how far the service has come; nil with other modes than auto. One
// that is new begins with observe; one whose mode was fixed until now goes on from there, on
// trial.
func rolloutOf(spec *isobar.Service, prev *Service) *Rollout {
	if spec.Mode != isobar.ModeAuto {
		return nil
	}
	p := spec.Promote.WithDefaults()
	t := &Rollout{Mode: isobar.ModeObserve}
	switch {
	case prev != nil && prev.Rollout != nil:
		t = prev.Rollout
	case prev != nil && prev.Spec.Mode != isobar.ModeAuto:
		t.Mode = prev.Spec.Mode
		if t.Mode != isobar.ModeObserve {
			t.Trial = p.Windows
		}
	}
	if p.Until == isobar.ModeBounded && t.Mode == isobar.ModeFull {
		bounded := *t
		bounded.Mode = isobar.ModeBounded
		return &bounded
	}
	return t
}

// watch takes the scores, and mode auto with them, on by a tick: by the open window, which
// holds enough to be judged if full says so, and by what gets worse in a trial. It closes
// the window where that was enough, and returns the rollout from then on. An operator's
// pause wins: then nothing is done. The service has its load and findings; s is a
// new value: that of the plan before stays as it is.
func (s *Scores) watch(of, prev *Service, now time.Time, network *isobar.Network, full bool) *Rollout {
	age := s.Open.To.Sub(s.Open.From)
	score, scored := s.Open.Score(of.Mode())
	due := full && scored && age >= scoreLength
	if of.Rollout == nil || of.Hold != "" {
		if due {
			s.close()
		}
		return of.Rollout.restartedGuard()
	}
	p := of.Spec.Promote.WithDefaults()
	t := *of.Rollout
	why := t.watchRegression(of, prev, now, network)
	t.bad++
	switch {
	case t.Mode == isobar.ModeObserve:
		why, t.bad = "", 0 // there is no way back
	case !full || !scored || age < scoreEarly || score >= p.Rollback:
		t.bad = 0
	case t.bad < scoreBad:
		due = false // the next tick tells
	default:
		why, due = fmt.Sprintf("the score fell to %.2f: %s", score, s.Open.worst()), true
	}
	if due {
		s.close()
		t.count(score, p)
	}
	switch {
	case why != "":
		t.step(now, true, p, why)
	case t.Good >= t.needed(p) && t.ahead(p):
		t.step(now, false, p, fmt.Sprintf("the score was at least %.2f for %d windows", p.Score, t.Good))
	default:
		return &t
	}
	// What was seen of one mode says nothing of the other.
	*s = Scores{at: now}
	return &t
}

// restartedGuard returns the state with an empty regression guard: some time is missing.
func (t *Rollout) restartedGuard() *Rollout {
	if t == nil || t.open.from.IsZero() {
		return t
	}
	out := *t
	out.open = regressionGuard{}
	return &out
}

// count books a window.
func (t *Rollout) count(score float64, p isobar.Promotion) {
	t.Trial = max(0, t.Trial-1)
	if score < p.Score {
		t.Good = 0
		return
	}
	t.Good = min(t.Good+1, t.needed(p))
	t.Calm++
	if t.Failed > 0 && t.Calm >= rolloutSteady*t.needed(p) {
		t.Failed, t.Calm = t.Failed-1, 0
	}
}

// ahead reports whether there is a step forward to take.
func (t *Rollout) ahead(p isobar.Promotion) bool {
	return t.Mode > p.Until && t.Mode != isobar.ModeFull
}

// step takes a step, and says why.
func (t *Rollout) step(now time.Time, back bool, p isobar.Promotion, why string) {
	verb := "promoted"
	if back {
		verb = "demoted"
		t.Mode++
		t.Failed, t.Calm, t.Trial = t.Failed+1, 0, 0
		t.Demoted++
	} else {
		t.Mode--
		t.Trial, t.Before = p.Windows, t.newest
		t.Promoted++
	}
	t.Good, t.Stepped, t.Back = 0, now, back
	t.Why = fmt.Sprintf("%s to %s because %s", verb, t.Mode, why)
	t.open, t.bad = regressionGuard{}, 0
}

// worst says in words which part of a score is the least.
func (s *Seen) worst() string {
	adherence, _ := s.Adherence()
	text := fmt.Sprintf("%.0f%% of the requests land elsewhere than predicted", 100*(1-adherence))
	if u, ok := s.Utilization(); ok && u < adherence {
		text = fmt.Sprintf("utilization is off by %.2f", 1-u)
	}
	return text
}
