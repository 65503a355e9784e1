package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
)

// Verdict is how the modes of a demo fared, beside each other.
type Verdict struct {
	Outcomes []Outcome `json:"outcomes"` // in the order in which they ran
	OK       bool      `json:"ok"`
	// Why lists what was not as it should be; empty when OK.
	Why []string `json:"why,omitempty"`
}

// Outcome is how one mode fared.
type Outcome struct {
	Mode isobar.Mode  `json:"mode"`
	Step PhaseOutcome `json:"step"` // from the step of the load until its end
	Hang HangOutcome  `json:"hang"` // of a backend between the two
	Loss PhaseOutcome `json:"loss"` // from the loss of a zone until the end
	// Takeover is what followed the kill of the leader of a group of replicas; missing
	// where the management server is alone.
	Takeover *TakeoverOutcome `json:"takeover,omitempty"`

	Requests uint64 `json:"requests"` // in the whole run
	// Failed are the failures in the whole run: those of both phases, those of
	// the hang and all others, FailedElsewhere.
	Failed          uint64  `json:"failed"`
	FailedElsewhere uint64  `json:"failed_elsewhere"`
	Causes          []Cause `json:"causes,omitempty"` // of all failures, the most frequent first
}

// PhaseOutcome is how a mode fared after one event. Latency is that of the
// requests that were answered. A request belongs to the phase in which it was
// due, but if the loss caught it under way and it failed it belongs to the loss.
type PhaseOutcome struct {
	Zone             isobar.Locality `json:"zone"` // where it happened
	Seconds          float64         `json:"seconds"`
	Requests         uint64          `json:"requests"` // that were due in the phase
	MeanMS           float64         `json:"mean_ms"`
	P99MS            float64         `json:"p99_ms"`
	FinalMeanMS      float64         `json:"final_mean_ms"` // over the last third
	FinalP99MS       float64         `json:"final_p99_ms"`
	FullestZone      isobar.Locality `json:"fullest_zone"`     // over the last third
	FullestLoad      float64         `json:"fullest_load"`     // requests that arrive there / its capacity
	FailedUnderWay   uint64          `json:"failed_under_way"` // due before the loss, failed after it
	FailedAtOnce     uint64          `json:"failed_at_once"`   // due in the first 2 s after the loss
	Failed           uint64          `json:"failed"`           // all others
	Unavoidable      uint64          `json:"unavoidable"`      // failures for lack of capacity in the whole fleet
	CrossRegion      float64         `json:"cross_region"`
	Settled          bool            `json:"settled"`
	SecondsToSettle  float64         `json:"seconds_to_settle"` // 0 when it has not settled
	WhyNotSettled    string          `json:"why_not_settled,omitempty"`
	SettledBelowLoad float64         `json:"settled_below_load"`
	// CheckersFound says that health checkers agreed that all backends of the
	// zone are down; of the loss only.
	CheckersFound   bool    `json:"checkers_found"`
	CheckersSeconds float64 `json:"checkers_seconds"` // how long after the loss; 0 when they did not
	LateMS          float64 `json:"late_ms"`          // how late the load generator was at worst
}

const (
	// graceAfterLoss is how long requests may fail for the loss itself: no
	// control plane can take back what a dying zone was working on.
	graceAfterLoss = 2 * time.Second
	// settledSlack is added to the ceiling for the randomness of arrivals (three standard
	// deviations of what a zone gets in three seconds are 0.08) and for capacities that
	// requests show only within 12%.
	settledSlack = 0.15
)

// AllFailed are all failures that belong to the phase.
func (p *PhaseOutcome) AllFailed() uint64 { return p.FailedUnderWay + p.FailedAtOnce + p.Failed }

// Outcome sums up a run that was played to its end.
func (r *Run) Outcome() Outcome {
	s := &r.scenario
	whole := r.recorder.Window(0, s.Length())
	o := Outcome{
		Mode: r.mode,
		Step: r.phaseOutcome(s.Step.Zone, s.WarmUp, s.WarmUp+s.OnStep, 0, isobar.Locality{}),
		Loss: r.phaseOutcome(s.Loss.Zone, s.lossAt(), s.Length(), graceAfterLoss, s.Loss.Zone),

		Requests: whole.Requests, Failed: whole.Failed, Causes: whole.Causes,
	}
	// What the loss caught under way may have been due in the step.
	o.Step.Failed -= r.recorder.FailedUnderWay(s.WarmUp, s.WarmUp+s.OnStep, s.lossAt())
	o.Loss.FailedUnderWay = r.recorder.FailedUnderWay(0, s.lossAt(), s.lossAt())
	o.Loss.CheckersFound, o.Loss.CheckersSeconds = r.lossFound()
	o.Hang = r.hangOutcome()
	o.Takeover = r.takeoverOutcome()
	o.FailedElsewhere = o.Failed - o.Step.AllFailed() - o.Hang.Failed - o.Loss.AllFailed()
	return o
}

// takeoverOutcome sums up the kill of the leader; nil where there was none.
func (r *Run) takeoverOutcome() *TakeoverOutcome {
	g, ok := r.manager.(leaderKiller)
	if !ok || r.scenario.KillLeader == 0 {
		return nil
	}
	out := &TakeoverOutcome{}
	if taken := g.taken(); taken != nil {
		*out = *taken
	}
	out.count(r.recorder, &r.scenario)
	return out
}

// count counts the requests that were due in the time after the kill. What the loss of a zone
// caught under way is not of the takeover: on a busy machine requests take that long.
func (t *TakeoverOutcome) count(r *Recorder, s *Scenario) {
	killed := s.WarmUp + s.KillLeader
	w := r.Window(killed, killed+takeoverSpan)
	t.Failed, t.Requests = w.Failed-r.FailedUnderWay(killed, killed+takeoverSpan, s.lossAt()), w.Requests
}

// faults lists what was not as it should be; a nil outcome has none.
func (t *TakeoverOutcome) faults() []string {
	switch {
	case t == nil:
		return nil
	case t.Leader == "":
		return []string{"no replica led the group when the leader was to be killed"}
	case t.Successor == "":
		return []string{fmt.Sprintf("no replica published a plan within %v after %s was killed", takeoverSpan, t.Leader)}
	case t.Failed > 0:
		return []string{fmt.Sprintf("%d requests failed within %v after %s, which led, was killed", t.Failed, takeoverSpan, t.Leader)}
	}
	return nil
}

// hangOutcome sums up the hang. Its failures are those of requests that the
// backend had, due between the end of the step and that of the hang.
func (r *Run) hangOutcome() HangOutcome {
	if r.hung == nil {
		return HangOutcome{}
	}
	s := &r.scenario
	o := r.hang.outcome(r.hung.Address(), &r.believed)
	o.Zone = s.Hang.Zone
	o.Failed = r.recorder.FailedAt(r.hung.Address(), s.WarmUp+s.OnStep, s.hangAt()+s.Hang.For, s.hangAt(), s.lossAt())
	return o
}

// lossFound returns how long after the loss the last backend of its zone was
// believed to be down.
func (r *Run) lossFound() (found bool, seconds float64) {
	end := r.began.Add(r.scenario.Length())
	for _, b := range r.in(r.scenario.Loss.Zone) {
		at, _, ok := r.believed.down(b.Address(), r.lostAt, end)
		if !ok {
			return false, 0
		}
		found, seconds = true, max(seconds, at.Sub(r.lostAt).Seconds())
	}
	return found, seconds
}

// phaseOutcome sums up what was due after an event at an offset; dead is the
// zone that has no capacity any more (zero = none).
func (r *Run) phaseOutcome(zone isobar.Locality, event, end, grace time.Duration, dead isobar.Locality) PhaseOutcome {
	grace = min(grace, end-event)
	whole := r.recorder.Window(event, end)
	final := r.recorder.Window(end-(end-event)/3, end)
	counted := r.recorder.Window(event+grace, end)
	demand, capacity := 0.0, 0.0
	for i, z := range r.scenario.Zones {
		demand += r.scenario.rate(i, event)
		if z.Locality != dead {
			capacity += float64(z.Backends) * r.scenario.backendCapacity()
		}
	}
	out := PhaseOutcome{
		Zone: zone, Seconds: (end - event).Seconds(), Requests: whole.Requests,
		MeanMS: inMS(whole.Mean), P99MS: inMS(whole.P99),
		FinalMeanMS: inMS(final.Mean), FinalP99MS: inMS(final.P99),
		Failed: counted.Failed, FailedAtOnce: whole.Failed - counted.Failed,
		Unavoidable:      uint64(max(0, demand-capacity) * (end - event - grace).Seconds()),
		CrossRegion:      whole.CrossRegion,
		LateMS:           inMS(whole.Late),
		SettledBelowLoad: max(isobar.DefaultCeiling, demand/capacity) + settledSlack,
	}
	out.FullestZone, out.FullestLoad = final.Fullest()
	after, why := r.recorder.Settled(event, end, out.SettledBelowLoad)
	out.Settled, out.SecondsToSettle, out.WhyNotSettled = why == "", after.Seconds(), why
	return out
}

// Judge says whether Isobar did its work: in mode full the fleet settled after
// the step and the loss, served all that capacity allows, and a backend that
// hung was found, drained and used again. Requests that it had may fail. For the loss itself
// requests may fail that it caught under way, or that came within 2 s of it.
func Judge(outcomes []Outcome) Verdict {
	v := Verdict{Outcomes: outcomes}
	judged := false
	for i := range outcomes {
		if o := &outcomes[i]; o.Mode == isobar.ModeFull {
			judged = true
			v.Why = append(v.Why, o.faults()...)
		}
	}
	if !judged {
		v.Why = append(v.Why, "mode full was not run")
	}
	v.OK = len(v.Why) == 0
	return v
}

// faults lists what was not as it should be.
func (o *Outcome) faults() []string {
	why := append(o.Step.unsettled("the load step in"), o.Loss.unsettled("the loss of")...)
	add := func(when string, failed, unavoidable uint64) {
		if failed > unavoidable {
			why = append(why, fmt.Sprintf("%d requests failed %s, unavoidable were %d", failed, when, unavoidable))
		}
	}
	add("in the load step", o.Step.Failed, o.Step.Unavoidable)
	add(fmt.Sprintf("from %v after the loss", graceAfterLoss), o.Loss.Failed, o.Loss.Unavoidable)
	add("outside of both phases", o.FailedElsewhere, 0)
	return slices.Concat(why, o.Takeover.faults(), o.Hang.faults())
}

func (p *PhaseOutcome) unsettled(event string) []string {
	if p.Settled {
		return nil
	}
	return []string{fmt.Sprintf("not settled %.0f s after %s %s: %s", p.Seconds, event, p.Zone, p.WhyNotSettled)}
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// beliefPoll is between the looks at what the management server believes.
const beliefPoll = 50 * time.Millisecond

// beliefs keeps what the management server believes of each backend's health,
// on the word of its checkers, and since when.
type beliefs struct {
	stop    context.CancelFunc
	watched sync.WaitGroup

	mu      sync.Mutex
	history map[string][]belief // by address, in the order of time
	err     error
}

// belief is a status that is believed from a moment on.
type belief struct {
	at     time.Time
	status isobar.HealthStatus
}

// watch asks again and again, until close.
func (b *beliefs) watch(ctx context.Context, ask func(context.Context) (map[string]isobar.HealthStatus, error)) {
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.watched.Go(func() {
		for {
			seen, err := ask(ctx)
			if err != nil {
				b.fail(err)
				return
			}
			b.learn(time.Now(), seen)
			if waitUntil(ctx, time.Now().Add(beliefPoll)) != nil {
				return
			}
		}
	})
}

// fail keeps what ended the watch, unless that is its regular end.
func (b *beliefs) fail(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// learn takes in what is believed now; only changes are kept.
func (b *beliefs) learn(now time.Time, seen map[string]isobar.HealthStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.history == nil {
		b.history = make(map[string][]belief)
	}
	for address, status := range seen {
		h := b.history[address]
		if len(h) == 0 || h[len(h)-1].status != status {
			b.history[address] = append(h, belief{at: now, status: status})
		}
	}
}

// down tells when, from one moment until another, a backend was first believed
// not to be usable, and as what.
func (b *beliefs) down(address string, from, until time.Time) (at time.Time, as isobar.HealthStatus, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.history[address] {
		if !h.at.Before(from) && h.at.Before(until) && !h.status.Usable() {
			return h.at, h.status, true
		}
	}
	return time.Time{}, isobar.Unknown, false
}

// close ends the watch and returns the error that ended it before.
func (b *beliefs) close() error {
	if b.stop != nil {
		b.stop()
	}
	b.watched.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// HangEvent makes one backend of a zone hang for a while: it accepts requests
// and health checks and never answers.
type HangEvent struct {
	Zone  isobar.Locality
	After time.Duration // from the end of the step
	For   time.Duration // 0 = nothing hangs
}

// quietSpan is how long before the end of a hang no request may reach the
// backend any more, if it counts as drained.
const quietSpan = time.Second

// HangOutcome is how a mode fared while a backend hung. All times are in
// seconds; those of what did not happen are 0.
type HangOutcome struct {
	Zone    isobar.Locality `json:"zone"`
	Seconds float64         `json:"seconds"` // how long it hung; 0 = nothing did
	// Found says that health checkers agreed that it is down, As what.
	Found        bool                `json:"found"`
	FoundSeconds float64             `json:"found_seconds"` // from the beginning of the hang
	As           isobar.HealthStatus `json:"as,omitzero"`
	// Drained says that no request reached it any more in the last second.
	Drained        bool    `json:"drained"`
	DrainedSeconds float64 `json:"drained_seconds"` // from the beginning of the hang until the last request came
	Failed         uint64  `json:"failed"`          // requests that it had and that failed
	// Back says that it got requests again after the hang.
	Back        bool    `json:"back"`
	BackSeconds float64 `json:"back_seconds"` // from the end of the hang until the first request came
}

// hangWatch sees what happens at the backend that hangs.
type hangWatch struct {
	mu           sync.Mutex
	began, ended time.Time
	last         time.Time // arrival during the hang
	first        time.Time // arrival after it
}

// arrived counts a request that reached the backend.
func (h *hangWatch) arrived(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.began.IsZero():
	case h.ended.IsZero():
		h.last = now
	case h.first.IsZero():
		h.first = now
	}
}

// begin and end are called right when the backend hangs and works again.
func (h *hangWatch) begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = now
}

func (h *hangWatch) end(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = now
}

// outcome sums up what was seen at a backend and believed of it.
func (h *hangWatch) outcome(address string, believed *beliefs) HangOutcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	var o HangOutcome
	if h.ended.IsZero() {
		return o
	}
	o.Seconds = h.ended.Sub(h.began).Seconds()
	if at, as, ok := believed.down(address, h.began, h.ended); ok {
		o.Found, o.FoundSeconds, o.As = true, at.Sub(h.began).Seconds(), as
	}
	if h.ended.Sub(later(h.began, h.last)) >= quietSpan {
		o.Drained, o.DrainedSeconds = true, later(h.began, h.last).Sub(h.began).Seconds()
	}
	// A backend that was never drained does not come back either.
	if o.Drained && !h.first.IsZero() {
		o.Back, o.BackSeconds = true, h.first.Sub(h.ended).Seconds()
	}
	return o
}

// faults lists what was not as it should be.
func (o *HangOutcome) faults() []string {
	var why []string
	switch {
	case o.Seconds == 0:
	case !o.Found:
		why = append(why, fmt.Sprintf("health checkers did not find the backend in %s that hung for %.0f s", o.Zone, o.Seconds))
	case !o.Drained:
		why = append(why, fmt.Sprintf("the backend in %s that hung was found after %.1f s but still got requests", o.Zone, o.FoundSeconds))
	case !o.Back:
		why = append(why, fmt.Sprintf("the backend in %s that had hung got no more requests", o.Zone))
	}
	return why
}
