package control

import (
	"context"
	"errors"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// previewPatience bounds the time of a preview; shares that have not converged by then are
// reported as not converged. It is less than operators' tools wait.
const previewPatience = 10 * time.Second

// previews compute the effects of changes. They work outside of the loop, which continues
// meanwhile, and only read.
type previews struct {
	opts     *Options
	loop     source
	panicked func() // counts an internal error
}

// source is the part of the loop that previews use.
type source interface {
	// Current is the plan in force.
	Current() *plan.Plan
	// present is a turn that begins now, with nothing reported.
	present(ctx context.Context, topology *isobar.Topology, operators health.Table) (*plan.Turn, error)
	// rolledBack is the plan that a rollback in a turn would make, or why it would make none.
	rolledBack(ctx context.Context, t *plan.Turn, version uint64, service string) (p *plan.Plan, refused, err error)
}

// now is a turn on the present topology and health.
func (v *previews) now(ctx context.Context) (*plan.Turn, error) {
	topology, operators := v.opts.Topology.State()
	return v.loop.present(ctx, topology, operators)
}

// tick is the time between two decisions.
func (v *previews) tick() time.Duration { return v.opts.timing().Tick }

// Preview returns the changes that another topology would cause, at today's demand and health. It
// works outside of the loop, which continues meanwhile.
func (v *previews) Preview(ctx context.Context, topology *isobar.Topology, operators health.Table) (plan.Difference, error) {
	turn, err := v.loop.present(ctx, topology, operators)
	if err != nil {
		return plan.Difference{}, err
	}
	return difference(play(ctx, 0, func() (*plan.Preview, error) { return plan.NewPreview(turn, v.tick()) }))
}

// WhatIf returns the effects of a loss, a drain or more demand on the present topology and
// health. It works outside of the loop, as Preview does.
func (v *previews) WhatIf(ctx context.Context, w *plan.WhatIf) (plan.Difference, error) {
	turn, err := v.now(ctx)
	if err != nil {
		return plan.Difference{}, err
	}
	if w.Rollback != nil {
		return v.whatIfRolledBack(ctx, turn, w)
	}
	out, err := difference(play(ctx, 0, func() (*plan.Preview, error) { return plan.NewWhatIf(turn, v.tick(), w) }))
	if drain, alone := w.DrainAlone(); alone && err == nil {
		breaches, failed := v.Breaches(ctx, drain)
		out = withRefusals(out, breaches, failed)
	}
	return out, err
}

// whatIfRolledBack returns the changes by a rollback. It needs the history, which belongs to the
// loop. Nothing moves after it, because a rollback pauses.
func (v *previews) whatIfRolledBack(ctx context.Context, turn *plan.Turn, w *plan.WhatIf) (plan.Difference, error) {
	version, err := w.RollbackVersion()
	if err != nil {
		return plan.Difference{}, err
	}
	turn.Paused = turn.Paused.With(plan.Pause{Service: w.Rollback.Service, Since: turn.Now})
	turn.Force = true // the difference shows which localities would get too much
	p, refused, err := v.loop.rolledBack(ctx, turn, version, w.Rollback.Service)
	switch {
	case err != nil:
		return plan.Difference{}, err
	case errors.Is(refused, plan.ErrUnchanged):
		return plan.Compare(turn.Previous, turn.Previous), nil
	case refused != nil:
		return plan.Difference{}, refused
	}
	out := plan.Compare(turn.Previous, p)
	if breaches := out.Breaches(); len(breaches) > 0 {
		return withRefusals(out, breaches, nil), nil
	}
	return withLosses(out, v.rollbackBreaches(ctx, version, plan.Pause{Service: w.Rollback.Service})), nil
}

// withLosses adds the result of the check of a rollback.
func withLosses(d plan.Difference, found error) plan.Difference {
	if tooMuch, ok := errors.AsType[*plan.TooMuchError](found); ok {
		if tooMuch.Loss {
			return withRefusals(d, ofReserve(&d, tooMuch.Breaches), nil)
		}
		return withRefusals(d, tooMuch.Breaches, nil)
	}
	return withRefusals(d, nil, found)
}

// withRefusals adds the reasons for which the server would refuse the change, or why they are not
// known.
func withRefusals(d plan.Difference, breaches []string, err error) plan.Difference {
	d.Refusals = breaches
	if err != nil {
		d.Unchecked = "it was not checked whether the rest can carry the traffic: " + err.Error()
	}
	return d
}

func difference(p *plan.Preview, err error) (plan.Difference, error) {
	if err != nil {
		return plan.Difference{}, err
	}
	return p.Difference(), nil
}

// play plays a preview, for so many ticks at most; 0 = until it has settled.
func play(ctx context.Context, ticks int, begin func() (*plan.Preview, error)) (p *plan.Preview, err error) {
	defer func() {
		if r := recover(); r != nil { // an internal error must not end a server that publishes nothing of this
			err = errors.New("the preview failed by an internal error")
		}
	}()
	started := time.Now()
	p, err = begin()
	for more := true; more && err == nil; {
		if err = ctx.Err(); err == nil {
			more, err = p.Step()
		}
		if err == nil && p.First != nil && (p.Ticks == ticks || time.Since(started) > previewPatience) {
			more = false
		}
	}
	return p, err
}
