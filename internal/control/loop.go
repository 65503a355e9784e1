// Package control runs the loop: it is the sole owner of all state that
// changes and the only writer of the current plan. Everything it decides, it
// decides by calling pure code; everything it waits for is in one select.
package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Loop is the control loop. Create it with New and call Run once. The embedded parts are the
// state for other goroutines, and the previews that run beside it.
type Loop struct {
	status
	*previews
	survey

	opts    Options
	log     *slog.Logger
	metrics *metrics
	retimed chan struct{} // capacity 1: the timing changed
	asked   chan func()   // to be run by the loop

	healthView atomic.Pointer[healthView]  // for metrics
	loadMemory atomic.Pointer[load.Memory] // at the last decision on reports; nil before the first, and while this replica follows

	// Owned by the goroutine of Run.
	decider      *decider
	recorders    recorders
	health       healthWatch
	state        *persistence
	group        membership
	set          *view.Set
	last         *plan.Plan // the last that was decided, drops and all
	lastReapply  time.Time
	unkept       time.Time            // when it was last logged that load of clients was not kept
	bad          map[string]time.Time // violations logged, to bound the log
	decided      bool                 // in a group: this replica led last
	gathering    time.Time            // in a group: since when this replica leads with a provisional plan
	withDrops    *plan.Saved          // in a group: the plan in force as it was before drops were taken back; nil = none were
	leaderHealth *health.SavedMonitor // of a follower: the leader's state of health, if the monitor does not have it yet
}

// New makes a loop.
func New(opts Options) (*Loop, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	l := &Loop{opts: opts, log: opts.Log, bad: map[string]time.Time{}, retimed: make(chan struct{}, 1), asked: make(chan func())}
	l.left, l.group.Group, l.recorders.log = make(chan struct{}), opts.Group, opts.Log
	l.previews = &previews{opts: &l.opts, loop: l, panicked: func() { l.metrics.panics.Inc() }}
	l.survey.previews, l.survey.retimed = l.previews, make(chan struct{}, 1)
	l.metrics = newMetrics(opts.Registerer, l)
	l.health = healthWatch{
		opts: &l.opts, recorders: &l.recorders, shown: &l.healthView,
		ignored: func(reports int) { l.metrics.ignored.Add(float64(reports)) },
		save:    func(j job) { l.state.saver.save(j) },
		unsaved: func() bool { return l.state.saver.fails() },
		inGroup: opts.Group != nil,
	}
	return l, nil
}

// Retime says that Options.Timing or Options.SurveyEvery returns a new value, which then holds
// from now on and not only after the next tick or round.
func (l *Loop) Retime() {
	for _, woken := range []chan struct{}{l.retimed, l.survey.retimed} {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

// Run runs the loop until ctx ends, then takes back what clients drop and saves
// the plan. What can happen to the state, all of it here:
//
//	topology changed   reapply at once, or when the hold-off since the last is over
//	health changed     record what checkers say, or soon, after a look just before; the same, if clients should know
//	health due         the same: votes age, and changes that were held back come out
//	asked              answer an operator
//	hold-off over      reapply
//	timing changed     the next tick comes when the new timing says, counted from the last one
//	tick               collect reports, solve, assign, check, publish
//	ctx done           take back drops, save and leave
//	role changed       in a group of replicas: decide no more, and follow another one
//
// In a group, the loop of a replica that does not lead only follows: see
// [Loop.follow].
func (l *Loop) Run(ctx context.Context) error {
	if l.opts.Group != nil {
		return l.runInGroup(ctx)
	}
	if err := l.start(); err != nil {
		close(l.left)
		return err
	}
	defer l.stop()
	defer l.leave()
	l.decide(ctx, 0)
	return nil
}

// decide takes decisions until ctx ends, or until the replica may not in its epoch.
func (l *Loop) decide(ctx context.Context, epoch uint64) {
	tick := newTicker(l.opts.timing().Tick)
	defer tick.timer.Stop()
	holdOff := time.NewTimer(0)
	defer holdOff.Stop()
	<-holdOff.C
	look := time.NewTimer(time.Until(l.health.due))
	defer look.Stop()
	pending := false
	changed := func() {
		if pending {
			return
		}
		if wait := l.opts.HoldOff - time.Since(l.lastReapply); wait > 0 {
			pending = true
			holdOff.Reset(wait)
			return
		}
		l.reapply()
	}
	observe := func() {
		if l.health.observe(time.Now()) {
			changed()
		}
		look.Reset(time.Until(l.health.due))
	}
	for {
		l.turned()
		select {
		case <-ctx.Done():
			return
		case <-l.group.roleChanged():
			if goesOn, _ := l.group.stays(epoch); !goesOn {
				return
			}
		case <-l.opts.Topology.Changed():
			l.health.observe(time.Now())
			look.Reset(time.Until(l.health.due))
			changed()
		case <-l.opts.Checkers.Changed():
			if l.health.changed(time.Now()) {
				observe()
			} else {
				look.Reset(time.Until(l.health.due))
			}
		case <-look.C:
			observe()
		case do := <-l.asked:
			do()
			look.Reset(time.Until(l.health.due))
		case <-holdOff.C:
			pending = false
			l.reapply()
		case <-l.retimed:
			tick.retime(l.opts.timing().Tick)
			observe()
		case <-tick.timer.C:
			started := time.Now()
			if _, decides := l.group.stays(epoch); decides {
				l.tick()
			}
			look.Reset(time.Until(l.health.due))
			tick.ticked(started, l.opts.timing().Tick)
		}
	}
}

// start publishes the first plan: the saved one reapplied on now, else the
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
	l.startState(saved, saved.Demand(), now)
	l.clock.begin(now, saved.Made)
	version := beyond(saved, max(saved.Reserved, saved.Version), now, l.opts.Boot())
	_ = l.state.reserve(*saved, version) // it is told, and serving goes on
	if err := l.startHealth(now); err != nil {
		return err
	}
	topology, operators := l.opts.Topology.State()
	first, err := plan.Restore(saved, topology, l.health.monitor.Table(operators), now, version)
	if err != nil {
		l.state.saver.close()
		return fmt.Errorf("control: the first plan: %w", err)
	}
	l.lastReapply = now
	l.state.note(plan.Restored(saved, first))
	l.publish(first)
	return nil
}

// startState restores the state of an earlier process, and the demand in it.
func (l *Loop) startState(saved *plan.Saved, demand []load.Saved, now time.Time) {
	l.state = newPersistence(&l.opts, saved, l.metrics)
	l.writing.Store(l.state.saver)
	l.decider = l.newDecider(demand, now)
}

// newDecider makes a decider that knows the demand of an earlier process.
func (l *Loop) newDecider(demand []load.Saved, now time.Time) *decider {
	d := plan.NewDecider(l.opts.timing().Interval, demand, now)
	d.SetLoadMemory(l.opts.LoadMemory)
	l.loadMemory.Store(nil) // it counts what it refuses from 0
	return &decider{Decider: d, recorders: &l.recorders}
}

// startHealth restores the health state of an earlier process.
func (l *Loop) startHealth(now time.Time) error {
	saved, err := l.opts.State.LoadHealth()
	if err != nil {
		l.state.saver.close()
		return fmt.Errorf("control: the saved health: %w", err)
	}
	if saved == nil {
		saved = &health.SavedMonitor{}
	}
	l.health.begin(saved, now)
	l.health.observe(now)
	return nil
}

// leave publishes the plan that clients keep while no server runs: the one in force without its
// drops. The saved plan has the drops, so that a successor continues with them.
func (l *Loop) leave() {
	defer close(l.left)
	l.last = l.Current()
	if p := l.last.WithoutDrops(time.Now(), l.last.Version+1); p != nil {
		if p.Version > l.state.reserved { // or a successor would use it again, for other content
			_ = l.state.reserve(l.state.toSave(l.last), p.Version) // it is told, and there is no later plan to wait for
		}
		l.log.Info("took back drops before stopping", "version", p.VersionString())
		l.undropped.Store(true)
		l.show(p)
	}
}

// stop saves the last plan, drops included, and the votes of checkers.
func (l *Loop) stop() {
	l.recorders.each(Recorder.Stopped)
	saved, found := l.state.toSave(l.last), l.health.monitor.Save()
	l.state.saver.save(job{plan: &saved, health: &found, pages: l.state.pages})
	l.state.saver.close()
	l.metrics.unregister()
}
