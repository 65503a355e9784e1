package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

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
		return l.decider.Rebase(t)
	})
}

// Resume takes the pause of a service back, or all of them without one; of tells
// who says so, and why. It returns the pauses that it took back. The error wraps
// plan.ErrNonePaused where all services are to be resumed and none is paused: no plan
// is made then.
func (l *Loop) Resume(ctx context.Context, of plan.Pause) (resumed plan.Pauses, p *plan.Plan, warnings []string, err error) {
	origin := plan.Origin{Trigger: plan.TriggerOperator, About: of.Service, Who: of.Who, Reason: because("resume", of.Reason)}
	p, warnings, err = l.operate(ctx, origin, func(t *plan.Turn) (*plan.Plan, error) {
		back, remaining, err := t.Paused.Without(of.Service)
		if err != nil {
			return nil, err
		}
		resumed, t.Paused = back, remaining
		return l.decider.Rebase(t)
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
		return l.decider.Rollback(t, l.history, version, pause.Service)
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
			kept := l.toSave(p)
			l.saver.save(job{plan: &kept, done: []chan<- error{saved}})
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
	if l.opts.Group != nil {
		if err := l.opts.Group.Paused(ctx); err != nil {
			warnings = append(warnings, "it is in force, but the group does not keep it: it would end with this leader: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return done.plan, warnings, nil
}

// because joins what an operator does with the reason, where there is one.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}
