// Package control runs the loop: it is the sole owner of all state that
// changes and the only writer of the current plan. Everything it decides, it
// decides by calling pure code; everything it waits for is in one select.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/views"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Defaults of Options.
const (
	DefaultTick     = 5 * time.Second
	DefaultInterval = 5 * time.Second
	// DefaultHoldOff is the least time between two plans that only carry a
	// topology or health change: the first is published at once, a burst
	// coalesces.
	DefaultHoldOff = 100 * time.Millisecond
)

// Topology is where services and the operator's health marks come from.
type Topology interface {
	// State gives the present topology and health. Both are immutable.
	State() (*isobar.Topology, health.Table)
	// Changed signals that State gives something new. Capacity 1: several
	// changes may come as one signal.
	Changed() <-chan struct{}
}

// Reports is where load reports come from.
type Reports interface {
	// Collect hands over what each stream reported since the last call. The
	// windows are valid until the next call.
	Collect(now time.Time) []load.StreamWindow
}

// Clients is the stream layer: it gets each plan's views, and tells who
// subscribes to what.
type Clients interface {
	Publish(set *views.Set)
	Subscriptions() []xds.Subscription
}

// State keeps the plan across restarts.
type State interface {
	// LoadPlan gives the last good plan; nil without error when there is none.
	LoadPlan() (*plan.Saved, error)
	// SavePlan returns when the plan is durable.
	SavePlan(saved plan.Saved) error
	// LoadHealth and SaveHealth do the same for what checkers found.
	LoadHealth() (*health.SavedKeeper, error)
	SaveHealth(saved health.SavedKeeper) error
	// LoadHistory and SavePage do the same for what changed: a page at a time,
	// of which the last plan.MaxPages are kept.
	LoadHistory() ([]plan.Page, error)
	SavePage(page plan.Page) error
}

// Timing is what a reload of the configuration may change.
type Timing struct {
	Tick     time.Duration // between decisions; 0 = 5 s
	Interval time.Duration // at which clients report; 0 = 5 s
	Ladder   plan.Ladder   // what missing inputs do; its zero values are the defaults
}

// Options of a Loop. Topology, Reports, Clients, State and Views are required.
type Options struct {
	Timing  func() Timing // asked at every tick; nil = the defaults
	HoldOff time.Duration // between rebased plans; default 100 ms
	// SurveyEvery is asked how often to play the loss of each zone; nil, or 0 =
	// never.
	SurveyEvery func() time.Duration

	Topology Topology
	// Outdated lists how old the topology of services is, where it is not that of
	// now; nil = it always is.
	Outdated func(now time.Time) []plan.InputAge
	Checkers Checkers // nil = no health discovery
	Reports  Reports
	Clients  Clients
	State    State
	// Views encodes a plan; previous is nil for the first.
	Views func(p *plan.Plan, previous *views.Set) *views.Set

	Log        *slog.Logger
	Registerer prometheus.Registerer // nil = no metrics
}

// Loop is the control loop. Create it with New and call Run once.
type Loop struct {
	opts       Options
	log        *slog.Logger
	current    atomic.Pointer[plan.Plan]
	beat       atomic.Pointer[time.Time] // of the last turn of the loop
	ticked     atomic.Pointer[ticks]     // how many there were
	retimed    chan struct{}             // capacity 1: the timing changed
	waiters    waiters
	asked      chan func()   // to be run by the loop
	left       chan struct{} // closed when the last plan is published
	undropped  atomic.Bool   // that one took drops back
	healthView atomic.Pointer[healthView]
	reserves   atomic.Pointer[reserves]
	writing    atomic.Pointer[saver] // the same as saver, for others to ask
	metrics    *metrics

	// Owned by the goroutine of Run.
	decider     decider
	recorders   []Recorder
	operators   health.Table // of the last turn
	set         *views.Set
	history     *plan.History
	pages       []plan.Page // of it, to be saved with the next plan
	saver       *saver
	reserved    uint64
	lastSaved   time.Time
	keeper      *health.Keeper
	healthDue   time.Time // when health should be looked at again
	healthSaved time.Time
	last        *plan.Plan    // the last that was decided, drops and all
	healthDirty bool          // verdicts or drains changed since
	designated  time.Duration // the report interval that checkers were told
	lastRebase  time.Time
	bad         map[string]time.Time // violations logged, to bound the log
}

// New makes a loop.
func New(opts Options) (*Loop, error) {
	if opts.Topology == nil || opts.Reports == nil || opts.Clients == nil || opts.State == nil || opts.Views == nil {
		return nil, errors.New("control: Topology, Reports, Clients, State and Views are required")
	}
	if opts.Checkers == nil {
		opts.Checkers = nobody{}
	}
	if opts.Timing == nil {
		opts.Timing = func() Timing { return Timing{} }
	}
	opts.HoldOff = orDefault(opts.HoldOff, DefaultHoldOff)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{opts: opts, log: opts.Log, bad: map[string]time.Time{}, retimed: make(chan struct{}, 1), asked: make(chan func()), left: make(chan struct{})}
	l.metrics = newMetrics(opts.Registerer, l)
	return l, nil
}

// Current gives the plan in force; nil before the first.
func (l *Loop) Current() *plan.Plan { return l.current.Load() }

// Beat tells when the loop last turned; zero before it has begun.
func (l *Loop) Beat() time.Time {
	if at := l.beat.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Retime tells that Options.Timing gives something new, which then holds from
// now on and not only after the next tick.
func (l *Loop) Retime() {
	select {
	case l.retimed <- struct{}{}:
	default:
	}
}

// Run runs the loop until ctx ends, then takes back what clients drop and saves
// the plan. What can happen to
// the state, all of it here:
//
//	topology changed   rebase at once, or when the hold-off since the last is over
//	health changed     book what checkers say; the same, if clients should know
//	health due         the same: votes age, and changes that were held back come out
//	asked              answer an operator
//	hold-off over      rebase
//	timing changed     the next tick comes when the new timing says
//	tick               collect reports, solve, assign, check, publish
//	ctx done           take back drops, save and leave
func (l *Loop) Run(ctx context.Context) error {
	if err := l.start(); err != nil {
		close(l.left)
		return err
	}
	defer l.stop()
	defer l.leave()
	tick := time.NewTimer(l.timing().Tick)
	defer tick.Stop()
	holdOff := time.NewTimer(0)
	defer holdOff.Stop()
	<-holdOff.C
	look := time.NewTimer(time.Until(l.healthDue))
	defer look.Stop()
	pending := false
	changed := func() {
		if pending {
			return
		}
		if wait := l.opts.HoldOff - time.Since(l.lastRebase); wait > 0 {
			pending = true
			holdOff.Reset(wait)
			return
		}
		l.rebase()
	}
	sick := func() {
		if l.observeHealth(time.Now()) {
			changed()
		}
		look.Reset(time.Until(l.healthDue))
	}
	for {
		now := time.Now()
		l.beat.Store(&now)
		select {
		case <-ctx.Done():
			return nil
		case <-l.opts.Topology.Changed():
			l.observeHealth(time.Now())
			look.Reset(time.Until(l.healthDue))
			changed()
		case <-l.opts.Checkers.Changed():
			sick()
		case <-look.C:
			sick()
		case do := <-l.asked:
			do()
			look.Reset(time.Until(l.healthDue))
		case <-holdOff.C:
			pending = false
			l.rebase()
		case <-l.retimed:
			tick.Reset(l.timing().Tick)
			sick()
		case <-tick.C:
			started := time.Now()
			l.tick()
			look.Reset(time.Until(l.healthDue))
			// A late tick moves the next one; ticks never pile up.
			period := l.timing().Tick
			tick.Reset(max(period/4, period-time.Since(started)))
		}
	}
}

func (l *Loop) timing() Timing {
	t := l.opts.Timing()
	return Timing{Tick: orDefault(t.Tick, DefaultTick), Interval: orDefault(t.Interval, DefaultInterval), Ladder: t.Ladder}
}

// start publishes the first plan: the saved one rebased on now, else the
// baseline.
func (l *Loop) start() error {
	now := time.Now()
	saved, err := l.opts.State.LoadPlan()
	if err != nil {
		return fmt.Errorf("control: the saved plan: %w", err)
	}
	if saved == nil {
		saved = &plan.Saved{}
	}
	l.startHistory(saved)
	l.decider = decider{plan.NewDecider(l.timing().Interval, saved.Demand(), now), l}
	l.saver = newSaver(l.opts.State, l.log, l.metrics)
	l.writing.Store(l.saver)
	version := max(saved.Reserved, saved.Version) + 1
	l.reserve(*saved, version)
	if err := l.startHealth(now); err != nil {
		l.saver.close()
		return fmt.Errorf("control: the saved health: %w", err)
	}
	topology, operators := l.opts.Topology.State()
	first, err := plan.Restore(saved, topology, l.keeper.Table(operators), now, version)
	if err != nil {
		l.saver.close()
		return fmt.Errorf("control: the first plan: %w", err)
	}
	l.lastRebase = now
	l.note(plan.Restored(saved, first))
	l.publish(first)
	return nil
}

func (l *Loop) stop() {
	l.tell(Recorder.Stopped)
	saved, found := l.toSave(l.last), l.keeper.Save()
	l.saver.save(job{plan: &saved, health: &found, pages: l.pages})
	l.saver.close()
	l.metrics.unregister()
}

// rebase carries the current weights over to the present topology and health.
func (l *Loop) rebase() {
	l.lastRebase = time.Now()
	_, _ = l.next(plan.Origin{}, l.decider.Rebase, nil) // it is logged, and the last plan stays
}

// tick takes one decision.
func (l *Loop) tick() {
	started := time.Now()
	l.observeHealth(started)
	_, _ = l.next(plan.Origin{}, l.decider.Tick, l.opts.Reports.Collect(started))
	l.believe()
	l.countTick(time.Since(started))
}

// next makes and publishes the plan that follows. A defect that panics in pure
// code costs this plan only: the one in force goes on serving.
func (l *Loop) next(o plan.Origin, decide func(*plan.Turn) (*plan.Plan, error), windows []load.StreamWindow) (p *plan.Plan, err error) {
	before := l.Current()
	defer func() { l.tell(func(r Recorder) { r.Decided(before, p, err) }) }()
	defer func() {
		if r := recover(); r != nil {
			l.metrics.panics.Inc()
			l.log.Error("planning failed, the last plan stays", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			p, err = nil, errDefect
		}
	}()
	turn := &plan.Turn{
		Now: time.Now(), Interval: l.timing().Interval, Windows: windows,
		Watched: watched(l.opts.Clients.Subscriptions()), Paused: before.Paused,
		Previous: before, Version: before.Version + 1,
	}
	turn.Ages, turn.Ladder = l.ages(turn.Now), l.timing().Ladder
	turn.Topology, l.operators = l.opts.Topology.State()
	turn.Health = l.keeper.Table(l.operators)
	if p, err = decide(turn); err != nil {
		if o.Trigger == "" { // an operator is told
			l.log.Error("planning failed, the last plan stays", "error", err)
		}
		return nil, err
	}
	change, ok := plan.Changed(before, p, o)
	if ok {
		l.note(change)
	}
	l.publish(p)
	return p, nil
}

// publish puts a plan in force: one atomic store, then the streams.
func (l *Loop) publish(p *plan.Plan) {
	if p.Version > l.reserved {
		l.reserve(l.toSave(p), p.Version)
	}
	before := l.Current()
	l.show(p)
	l.report(p)
	if l.worthSaving(before, p) {
		saved := l.toSave(p)
		l.saver.save(job{plan: &saved, pages: l.pages})
		l.lastSaved, l.pages = p.Made, nil
	}
}

// show tells the streams of a plan, and whoever waits for one.
func (l *Loop) show(p *plan.Plan) {
	l.set = l.opts.Views(p, l.set)
	l.current.Store(p)
	l.opts.Clients.Publish(l.set)
	l.waiters.wake()
}
