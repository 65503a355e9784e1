package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// errLeft is the answer to operators while the server stops.
var errLeft = errors.New("the server is stopping")

// ask has something answered by the loop's goroutine, which owns the state.
func ask[T any](ctx context.Context, l *Loop, do func() T) (T, error) {
	answer := make(chan T, 1)
	var none T
	select {
	case l.asked <- func() { answer <- do() }:
	case <-l.left:
		return none, errLeft
	case <-ctx.Done():
		return none, ctx.Err()
	}
	select {
	case v := <-answer:
		return v, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// errInternal answers an operator whose plan was lost to an internal error.
var errInternal = errors.New("the plan failed by an internal error; it is in the server's log")

// Pause freezes the weights of services until they are resumed; changes of
// topology and health go on. An empty name stands for all services, also those
// to come. The error wraps isobar.ErrNotFound for a service that is not there;
// warnings tell why the pause may not survive a restart.
func (l *Loop) Pause(ctx context.Context, pause plan.Pause) (p *plan.Plan, warnings []string, err error) {
	origin := plan.Origin{Trigger: plan.TriggerOperator, About: pause.Service, Who: pause.Who, Reason: because("pause", pause.Reason)}
	return l.operate(ctx, origin, func(t *plan.Turn) (*plan.Plan, error) {
		if _, ok := t.Previous.Service(pause.Service); pause.Service != "" && !ok {
			return nil, fmt.Errorf("service %q: %w", pause.Service, isobar.ErrNotFound)
		}
		pause.Since = t.Now
		t.Paused = t.Paused.With(pause)
		return l.decider.Reapply(t)
	})
}

// Resume ends the pause of a service, or all pauses without one; of names the operator, and the
// reason. It returns the ended pauses. The error wraps plan.ErrNonePaused if all services are to
// be resumed and none is paused: then it makes no plan.
func (l *Loop) Resume(ctx context.Context, of plan.Pause) (resumed plan.Pauses, p *plan.Plan, warnings []string, err error) {
	origin := plan.Origin{Trigger: plan.TriggerOperator, About: of.Service, Who: of.Who, Reason: because("resume", of.Reason)}
	p, warnings, err = l.operate(ctx, origin, func(t *plan.Turn) (*plan.Plan, error) {
		back, remaining, err := t.Paused.Without(of.Service)
		if err != nil {
			return nil, err
		}
		resumed, t.Paused = back, remaining
		return l.decider.Reapply(t)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return resumed, p, warnings, nil
}

// Rollback returns to the weights of an earlier version, of the service of the
// pause or of all, on present topology and health, and pauses. Errors are those of
// [plan.Decider.Rollback], and those of rollbackBreaches; force has it done where demand
// does not fit, now or after the loss of a zone.
func (l *Loop) Rollback(ctx context.Context, version uint64, pause plan.Pause, force bool) (before, next *plan.Plan, warnings []string, err error) {
	text := because(fmt.Sprintf("rollback to version %d", version), pause.Reason)
	pause.Reason = text
	if !force {
		if err := l.rollbackBreaches(ctx, version, pause); err != nil {
			return nil, nil, nil, err
		}
	}
	origin := plan.Origin{Trigger: plan.TriggerOperator, About: pause.Service, Who: pause.Who, Reason: text}
	next, warnings, err = l.operate(ctx, origin, func(t *plan.Turn) (*plan.Plan, error) {
		pause.Since = t.Now
		t.Paused, t.Force = t.Paused.With(pause), force
		before = t.Previous
		return l.decider.Rollback(t, l.state.history, version, pause.Service)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return before, next, warnings, nil
}

// operate makes and publishes a plan as an operator says, and waits until it is
// saved.
func (l *Loop) operate(ctx context.Context, o plan.Origin, decide func(*plan.Turn) (*plan.Plan, error)) (p *plan.Plan, warnings []string, err error) {
	saved := make(chan error, 1)
	type outcome struct {
		plan *plan.Plan
		err  error
	}
	done, err := ask(ctx, l, func() outcome {
		p, err := l.next(o, decide, nil, false)
		if err == nil {
			kept := l.state.toSave(p)
			l.state.saver.save(job{plan: &kept, done: []chan<- error{saved}})
		}
		return outcome{p, err}
	})
	switch {
	case err != nil:
		return nil, nil, err
	case done.err != nil:
		return nil, nil, done.err
	}
	l.log.Info("an operator changed the plan", "who", o.Who, "what", o.Reason, "version", done.plan.VersionString())
	select {
	case err = <-saved:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		warnings = append(warnings, "it is in force, but not saved: it would not survive a restart: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if l.group.Group != nil {
		if err := l.group.Paused(ctx); err != nil {
			warnings = append(warnings, "it is in force, but the group does not keep it: it would end with this leader: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return done.plan, warnings, nil
}

// because adds the reason to an operator's action, if there is one.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// Health returns the health of a service, or of all services that have health checks for an empty
// name. The loop answers between two turns.
func (l *Loop) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	return ask(ctx, l, func() []health.ServiceReport { return l.health.monitor.Report(service) })
}

// HealthOverview is Health of all services, without their endpoints: it takes far
// less of the loop's time.
func (l *Loop) HealthOverview(ctx context.Context) ([]health.ServiceReport, error) {
	return ask(ctx, l, func() []health.ServiceReport { return l.health.monitor.Overview() })
}

// Release believes a held mass flip of a service, as an operator says; false if
// nothing is held.
func (l *Loop) Release(ctx context.Context, service string) (bool, error) {
	return ask(ctx, l, func() bool {
		released := l.health.release(service)
		if released && l.health.observe(time.Now()) {
			l.reapply()
		}
		return released
	})
}

// History lists the changes of a service, or every change for an empty name, newest first.
func (l *Loop) History(ctx context.Context, service string) ([]plan.Change, error) {
	return ask(ctx, l, func() []plan.Change { return l.state.history.Changes(service) })
}

// Record lets a recorder listen until it is done. begin is given the state from
// which the recording goes on, to be read before it returns; the loop waits for
// it.
func (l *Loop) Record(ctx context.Context, r Recorder, begin func(Beginning) error) error {
	err, unasked := ask(ctx, l, func() error {
		return l.recorders.add(r, func() error {
			topology, operators := l.opts.Topology.State()
			return begin(Beginning{
				Now: time.Now(), Decider: l.decider.Decider, Monitor: l.health.monitor, Current: l.Current(), Topology: topology, Operators: operators,
			})
		})
	})
	return errors.Join(err, unasked)
}

// present is a turn that begins now, with nothing reported.
func (l *Loop) present(ctx context.Context, topology *isobar.Topology, operators health.Table) (*plan.Turn, error) {
	return ask(ctx, l, func() *plan.Turn {
		current := l.Current()
		return &plan.Turn{
			Now: time.Now(), Interval: l.opts.timing().Interval, Subscribed: subscribed(l.opts.Clients.Subscriptions(), nil), Paused: current.Paused,
			Previous: current, Version: current.Version + 1, Topology: topology, Health: l.health.monitor.Table(operators),
		}
	})
}

// rolledBack is the plan that a rollback in a turn would make, or why it would make none.
func (l *Loop) rolledBack(ctx context.Context, t *plan.Turn, version uint64, service string) (p *plan.Plan, refused, err error) {
	type outcome struct {
		plan    *plan.Plan
		refused error
	}
	o, err := ask(ctx, l, func() outcome {
		p, err := plan.RolledBack(t, l.state.history, version, service)
		return outcome{p, err}
	})
	return o.plan, o.refused, err
}
