// Package control runs the loop: it is the sole owner of all state that
// changes and the only writer of the current plan. Everything it decides, it
// decides by calling pure code; everything it waits for is in one select.
package control

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Loop is the control loop. Create it with New and call Run once.
type Loop struct {
	opts       Options
	log        *slog.Logger
	current    atomic.Pointer[plan.Plan]
	beat       atomic.Pointer[time.Time] // of the last turn of the loop
	ticked     atomic.Pointer[ticks]     // how many there were
	retimed    chan struct{}             // capacity 1: the timing changed
	resurvey   chan struct{}             // the same, for the survey
	waiters    waiters
	asked      chan func()   // to be run by the loop
	left       chan struct{} // closed when the last plan is published
	undropped  atomic.Bool   // that one took drops back
	healthView atomic.Pointer[healthView]
	clock      clockWatch
	reserves   atomic.Pointer[reserves]
	writing    atomic.Pointer[saver] // the same as saver, for others to ask
	metrics    *metrics

	// Owned by the goroutine of Run.
	decider     decider
	recorders   []Recorder
	operators   health.Table // of the last turn
	set         *view.Set
	history     *plan.History
	pages       []plan.Page // of it, to be saved with the next plan
	saver       *saver
	reserved    uint64 // versions up to here may be used
	ahead       uint64 // those up to here are being reserved
	lastSaved   time.Time
	keeper      *health.Keeper
	healthDue   time.Time             // when health should be looked at again
	healthSeen  time.Time             // when it was
	clients     *health.ClientReports // what load reports told at the last tick; nil once the keeper knows
	healthShown time.Time             // when metrics were last told of it
	healthSaved time.Time
	last        *plan.Plan    // the last that was decided, drops and all
	healthDirty bool          // verdicts or drains changed since
	designated  time.Duration // the report interval that checkers were told
	lastRebase  time.Time
	bad         map[string]time.Time // violations logged, to bound the log
	found       *health.SavedKeeper  // what the group was last told of health
	foundAt     time.Time            // when
	decided     bool                 // in a group: this replica led last
	told        *health.SavedKeeper  // of a follower: what the leader knows of health, if the keeper does not know it yet
}

// New makes a loop.
func New(opts Options) (*Loop, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	l := &Loop{
		opts: opts, log: opts.Log, bad: map[string]time.Time{},
		retimed: make(chan struct{}, 1), resurvey: make(chan struct{}, 1), asked: make(chan func()), left: make(chan struct{}),
	}
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

// Retime tells that Options.Timing or Options.SurveyEvery gives something new,
// which then holds from now on and not only after the next tick or round.
func (l *Loop) Retime() {
	for _, woken := range []chan struct{}{l.retimed, l.resurvey} {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

// Run runs the loop until ctx ends, then takes back what clients drop and saves
// the plan. What can happen to the state, all of it here:
//
//	topology changed   rebase at once, or when the hold-off since the last is over
//	health changed     book what checkers say, or soon, after a look just before; the same, if clients should know
//	health due         the same: votes age, and changes that were held back come out
//	asked              answer an operator
//	hold-off over      rebase
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
	tick := newTicker(l.timing().Tick)
	defer tick.timer.Stop()
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
	observe := func() {
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
			return
		case <-l.groupChanged():
			if goesOn, _ := l.stays(epoch); !goesOn {
				return
			}
		case <-l.opts.Topology.Changed():
			l.observeHealth(time.Now())
			look.Reset(time.Until(l.healthDue))
			changed()
		case <-l.opts.Checkers.Changed():
			if l.checkersChanged(time.Now()) {
				observe()
			} else {
				look.Reset(time.Until(l.healthDue))
			}
		case <-look.C:
			observe()
		case do := <-l.asked:
			do()
			look.Reset(time.Until(l.healthDue))
		case <-holdOff.C:
			pending = false
			l.rebase()
		case <-l.retimed:
			tick.retime(l.timing().Tick)
			observe()
		case <-tick.timer.C:
			started := time.Now()
			if _, decides := l.stays(epoch); decides {
				l.tick()
			}
			look.Reset(time.Until(l.healthDue))
			tick.ticked(started, l.timing().Tick)
		}
	}
}
