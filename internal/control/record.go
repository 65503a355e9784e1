package control

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Recorder takes down everything that pure code is given, before it gets it,
// and what it decides. The loop calls it in order and does not want to wait;
// what it hands over may change when the call has returned. operators is what
// operators set of health.
type Recorder interface {
	// Observe is told of what the keeper observes, and of the intervals that
	// hold then.
	Observe(e *health.Event, report, tick time.Duration)
	// Release is told that the keeper believes a mass flip.
	Release(service string, localities []isobar.Locality)
	// Tick, Rebase and Rollback are told of what is to be decided.
	Tick(t *plan.Turn, operators health.Table)
	Rebase(t *plan.Turn, operators health.Table)
	Rollback(t *plan.Turn, operators health.Table, h *plan.History, version uint64, service string)
	// Decided is told what was, or why nothing was. Plans don't change.
	Decided(before, after *plan.Plan, err error)
	// Stopped is told that the loop ends.
	Stopped()
	// Done tells whether it wants to hear nothing more.
	Done() bool
}

// Beginning is the state of pure code between two turns of the loop.
type Beginning struct {
	Now       time.Time
	Decider   *plan.Decider
	Keeper    *health.Keeper
	Current   *plan.Plan
	Topology  *isobar.Topology
	Operators health.Table
}

// maxRecorders is how many may listen at once: each costs time of the loop. A
// rolling trace begins with the next one before it ends the last.
const maxRecorders = 4

// ErrRecorders says that enough recorders listen.
var ErrRecorders = errors.New("too many recordings are in progress")

// Record lets a recorder listen until it is done. begin is given the state from
// which the recording goes on, to be read before it returns; the loop waits for
// it.
func (l *Loop) Record(ctx context.Context, r Recorder, begin func(Beginning) error) error {
	err, unasked := ask(ctx, l, func() error { return l.record(r, begin) })
	return errors.Join(err, unasked)
}

func (l *Loop) record(r Recorder, begin func(Beginning) error) (err error) {
	defer func() {
		if x := recover(); x != nil { // serving is worth more than a recording
			l.log.Error("a recording could not begin", "panic", fmt.Sprint(x), "stack", string(debug.Stack()))
			err = errors.New("the recording could not begin because of an internal error; it is in the server's log")
		}
	}()
	l.recorders = slices.DeleteFunc(l.recorders, Recorder.Done)
	if len(l.recorders) >= maxRecorders {
		return ErrRecorders
	}
	topology, operators := l.opts.Topology.State()
	err = begin(Beginning{
		Now: time.Now(), Decider: l.decider.Decider, Keeper: l.keeper, Current: l.Current(), Topology: topology, Operators: operators,
	})
	if err == nil {
		l.recorders = append(l.recorders, r)
	}
	return err
}

// tell tells all recorders. Where there are none, it costs nothing.
func (l *Loop) tell(of func(Recorder)) {
	if len(l.recorders) == 0 {
		return
	}
	l.recorders = slices.DeleteFunc(l.recorders, Recorder.Done)
	for _, r := range l.recorders {
		of(r)
	}
}

// decider is the plan's, with recorders that listen.
type decider struct {
	*plan.Decider

	loop *Loop
}

// Tick implements what its name says of [plan.Decider].
func (d decider) Tick(t *plan.Turn) (*plan.Plan, error) {
	d.loop.tell(func(r Recorder) { r.Tick(t, d.loop.operators) })
	return d.Decider.Tick(t)
}

// Rebase implements what its name says of [plan.Decider].
func (d decider) Rebase(t *plan.Turn) (*plan.Plan, error) {
	d.loop.tell(func(r Recorder) { r.Rebase(t, d.loop.operators) })
	return d.Decider.Rebase(t)
}

// Rollback implements what its name says of [plan.Decider].
func (d decider) Rollback(t *plan.Turn, h *plan.History, version uint64, service string) (*plan.Plan, error) {
	d.loop.tell(func(r Recorder) { r.Rollback(t, d.loop.operators, h, version, service) })
	return d.Decider.Rollback(t, h, version, service)
}

// release believes a mass flip of a service, in some localities or in all.
func (l *Loop) release(service string, localities ...isobar.Locality) bool {
	l.tell(func(r Recorder) { r.Release(service, localities) })
	return l.keeper.VerdictTable().Release(service, localities...)
}
