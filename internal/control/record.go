package control

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Recorder records all inputs of pure code, before the code gets them, and its decisions. The
// loop calls it in order and does not want to wait; the arguments may change when the call has
// returned. operators holds the health set by operators.
type Recorder interface {
	// Observe gets the inputs of the monitor, and the intervals that hold then.
	Observe(e *health.Event, report, tick time.Duration)
	// Release is told that the monitor believes a mass flip.
	Release(service string, localities []isobar.Locality)
	// Tick, Reapply and Rollback get the inputs of a decision.
	Tick(t *plan.Turn, operators health.Table)
	Reapply(t *plan.Turn, operators health.Table)
	Rollback(t *plan.Turn, operators health.Table, h *plan.History, version uint64, service string)
	// Decided gets the decision, or the error. Plans don't change.
	Decided(before, after *plan.Plan, err error)
	// Stopped is told that the loop ends.
	Stopped()
	// Done reports whether it wants to hear nothing more.
	Done() bool
}

// Beginning is the state of pure code between two turns of the loop.
type Beginning struct {
	Now       time.Time
	Decider   *plan.Decider
	Monitor   *health.Monitor
	Current   *plan.Plan
	Topology  *isobar.Topology
	Operators health.Table
}

// maxRecorders is how many may listen at once: each costs time of the loop. A
// rolling trace begins with the next one before it ends the last.
const maxRecorders = 4

// ErrRecorders says that enough recorders listen.
var ErrRecorders = errors.New("too many recordings are in progress")

// recorders are those that listen. They belong to the loop's goroutine.
type recorders struct {
	log *slog.Logger
	all []Recorder
}

// add lets a recorder listen, once begin has read the state from which the recording goes on.
func (s *recorders) add(r Recorder, begin func() error) (err error) {
	defer func() {
		if x := recover(); x != nil { // serving is worth more than a recording
			s.log.Error("could not start a recording", "panic", fmt.Sprint(x), "stack", string(debug.Stack()))
			err = errors.New("the recording could not begin because of an internal error; it is in the server's log")
		}
	}()
	s.all = slices.DeleteFunc(s.all, Recorder.Done)
	if len(s.all) >= maxRecorders {
		return ErrRecorders
	}
	if err = begin(); err == nil {
		s.all = append(s.all, r)
	}
	return err
}

// each calls a function for each recorder. Without recorders it costs nothing.
func (s *recorders) each(of func(Recorder)) {
	if len(s.all) == 0 {
		return
	}
	s.all = slices.DeleteFunc(s.all, Recorder.Done)
	for _, r := range s.all {
		of(r)
	}
}

// decider is the plan's, with recorders that listen.
type decider struct {
	*plan.Decider

	recorders *recorders
	operators health.Table // of the last turn
}

// Tick records and calls [plan.Decider.Tick].
func (d *decider) Tick(t *plan.Turn) (*plan.Plan, error) {
	d.recorders.each(func(r Recorder) { r.Tick(t, d.operators) })
	return d.Decider.Tick(t)
}

// Reapply records and calls [plan.Decider.Reapply].
func (d *decider) Reapply(t *plan.Turn) (*plan.Plan, error) {
	d.recorders.each(func(r Recorder) { r.Reapply(t, d.operators) })
	return d.Decider.Reapply(t)
}

// Rollback records and calls [plan.Decider.Rollback].
func (d *decider) Rollback(t *plan.Turn, h *plan.History, version uint64, service string) (*plan.Plan, error) {
	d.recorders.each(func(r Recorder) { r.Rollback(t, d.operators, h, version, service) })
	return d.Decider.Rollback(t, h, version, service)
}
