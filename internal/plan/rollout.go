package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Rollout says how far a service in mode auto has come, and what it takes to go
// on. It goes a step further after windows in a row whose score is good, and a
// step back as soon as one is bad, or as something gets worse than was predicted
// after a step; each step back doubles what the next step forward takes. Immutable
// once it is part of a plan.
type Rollout struct {
	Mode isobar.Mode `json:"mode"`           // that is served
	Good int         `json:"good,omitempty"` // consecutive windows whose score counts towards a step forward

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
// pause wins: then nothing is done. The service has its load and deviations; s is a
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
	text := fmt.Sprintf("%.0f%% of the requests go to other localities than predicted", 100*(1-adherence))
	if u, ok := s.Utilization(); ok && u < adherence {
		text = fmt.Sprintf("utilization is off by %.2f", 1-u)
	}
	return text
}

// RolloutExplained is the step of a service in mode auto, and the condition for the next one.
type RolloutExplained struct {
	Mode   isobar.Mode `json:"mode"`             // that is served
	Until  isobar.Mode `json:"until"`            // the furthest that is allowed
	Good   int         `json:"good"`             // consecutive windows whose score counts towards a step forward
	Needed int         `json:"needed,omitempty"` // of them for the step; 0 = there is none to take
	Failed int         `json:"failed"`           // steps back that good windows have not compensated for yet
	Trial  int         `json:"trial"`            // windows for which the last step is still on trial

	Stepped  time.Time `json:"stepped,omitzero"`
	Why      string    `json:"why,omitempty"`  // of the last step
	Back     bool      `json:"back,omitempty"` // the last step was one back
	Promoted int       `json:"promoted"`       // steps forward so far
	Demoted  int       `json:"demoted"`        // steps back so far
}

// Explain returns how far mode auto has come by the rules of a promotion; nil with other
// modes.
func (t *Rollout) Explain(rules isobar.Promotion) *RolloutExplained {
	if t == nil {
		return nil
	}
	p := rules.WithDefaults()
	out := &RolloutExplained{
		Mode: t.Mode, Until: p.Until, Good: t.Good, Failed: t.Failed, Trial: t.Trial,
		Stepped: t.Stepped, Why: t.Why, Back: t.Back, Promoted: t.Promoted, Demoted: t.Demoted,
	}
	if t.ahead(p) {
		out.Needed = t.needed(p)
	}
	return out
}

// String says it in a line.
func (e *RolloutExplained) String() string {
	text := fmt.Sprintf("serving %s", e.Mode)
	if !e.Stepped.IsZero() {
		text += " since " + e.Stepped.UTC().Format(time.RFC3339)
	}
	if e.Needed > 0 {
		text += fmt.Sprintf(", %d of %d good windows for %s", e.Good, e.Needed, e.Mode-1)
	}
	if e.Why != "" {
		text += "; " + e.Why
	}
	return text
}

// rolloutFormat is the version of SavedRollout. What another one wrote is not
// believed: mode auto restarts then, with observe.
const rolloutFormat = 1

// SavedRollout is how far mode auto has come, as it survives a restart.
type SavedRollout struct {
	Rollout

	Format int `json:"format"`
}

func (t *Rollout) save() *SavedRollout {
	if t == nil {
		return nil
	}
	return &SavedRollout{Format: rolloutFormat, Rollout: *t}
}

// revive returns the rollout state that was saved; nil where it is none.
func (s *SavedRollout) revive() *Rollout {
	if s == nil || s.Format != rolloutFormat || s.Mode > isobar.ModeObserve {
		return nil
	}
	t := s.Rollout
	for _, n := range []*int{&t.Good, &t.Failed, &t.Calm, &t.Trial, &t.Promoted, &t.Demoted} {
		*n = min(max(0, *n), math.MaxInt32)
	}
	for _, v := range []*float64{&t.Before.Errors, &t.Before.Over} {
		if *v != *v {
			*v = 0
		}
		*v = clamp(*v, 1)
	}
	return &t
}

// Regression holds the fractions of the requests that a step of mode auto must not
// increase.
type Regression struct {
	Errors float64 `json:"errors"` // that failed
	Over   float64 `json:"over"`   // that landed above the ceilings
}

// regressionGuard adds up to a Regression, in requests.
type regressionGuard struct {
	from, at     time.Time
	sent, errors float64
	// Above the ceilings: as was seen, as the plan's shares make of the demand that
	// was seen, and as the nearest localities alone would have had it.
	over, predicted, nearest float64
}

const (
	guardLeast    = 15 * time.Second // that is judged
	guardLength   = 30 * time.Second // that is added up
	guardRequests = 500.0            // that are judged

	// Errors may be twice what they were, and 2 points more, before it is the
	// step's fault; what lands above ceilings may be 5 points more than it was,
	// than predicted, and than without Isobar.
	guardFactor = 2.0
	guardErrors = 0.02
	guardOver   = 0.05
	guardSigmas = 4.0
)

// watchRegression adds the requests since the last tick, and returns what got worse by the
// last step of the mode; empty if nothing did, or the trial is over.
func (t *Rollout) watchRegression(of, prev *Service, now time.Time, network *isobar.Network) string {
	x := &t.open
	if x.from.IsZero() {
		x.from, x.at = now, now
		return ""
	}
	x.add(of, prev, min(now.Sub(x.at), scoreGap).Seconds(), network)
	x.at = now
	age := now.Sub(x.from)
	if age < guardLeast || x.sent < guardRequests {
		return ""
	}
	sum := *x
	seen := Regression{Errors: sum.errors / sum.sent, Over: sum.over / sum.sent}
	if age >= guardLength {
		t.newest, t.open = seen, regressionGuard{from: now, at: now}
	}
	if t.Trial == 0 {
		return ""
	}
	return sum.worse(seen, t.Before)
}

func (x *regressionGuard) worse(seen, before Regression) string {
	chance := guardSigmas * math.Sqrt(max(before.Errors, 1/x.sent)/x.sent)
	if most := max(guardFactor*before.Errors, before.Errors+guardErrors) + chance; seen.Errors > most {
		return fmt.Sprintf("%.1f%% of the requests fail, and %.1f%% did before", 100*seen.Errors, 100*before.Errors)
	}
	predicted, nearest := x.predicted/x.sent, x.nearest/x.sent
	if seen.Over > max(before.Over, predicted, nearest)+guardOver {
		return fmt.Sprintf("%.1f%% of the load is above the ceilings, %.1f%% was before and %.1f%% was predicted",
			100*seen.Over, 100*before.Over, 100*predicted)
	}
	return ""
}

// add adds what was seen for some seconds while prev was in force.
func (x *regressionGuard) add(of, prev *Service, seconds float64, network *isobar.Network) {
	predicted, nearest := make([]float64, len(prev.Sites)), make([]float64, len(prev.Sites))
	for i := range of.Load.Sources {
		s := &of.Load.Sources[i]
		x.sent += s.Raw * seconds
		x.errors += s.Errors * seconds
		r := prev.Result.Source(s.Source)
		if r == nil {
			continue
		}
		for l, share := range r.Shares {
			predicted[l] += share * s.Raw
		}
		best, at := math.Inf(1), -1
		for l := range prev.Sites {
			site := &prev.Sites[l]
			if ms, _ := network.Latency(s.Source, site.Group.Locality); ms < best && site.Usable() && of.Spec.Allows(s.Source, site.Group.Locality) {
				best, at = ms, l
			}
		}
		if at >= 0 {
			nearest[at] += s.Raw
		}
	}
	for i := range prev.Sites {
		if !prev.Site(i).hasCapacity() {
			continue
		}
		site := &prev.Sites[i]
		limit := site.Ceiling * max(1, site.Scale) * site.Capacity
		x.predicted += max(0, predicted[i]+site.Unmanaged-limit) * seconds
		x.nearest += max(0, nearest[i]+site.Unmanaged-limit) * seconds
		at := slices.IndexFunc(of.Load.Sites, func(y load.SiteLoad) bool { return y.Locality == site.Group.Locality })
		if at >= 0 {
			x.over += max(0, carried(site, &of.Load.Sites[at])-limit) * seconds
		}
	}
}

// carried is the load of a site: by what its endpoints report, else by what
// lands there.
func carried(site *assign.Site, l *load.SiteLoad) float64 {
	if l.Utilization > 0 {
		return l.Utilization * site.Capacity
	}
	return l.Issued + site.Unmanaged
}
