package control

import (
	"context"
	"errors"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// previewPatience bounds the time that a preview plays; what has not settled by
// then is told as not settled. It is less than operators' tools wait.
const previewPatience = 10 * time.Second

// Preview tells what another topology would change, at today's demand and
// health. It works outside of the loop, which goes on meanwhile.
func (l *Loop) Preview(ctx context.Context, topology *isobar.Topology, operators health.Table) (plan.Difference, error) {
	turn, err := l.turn(ctx, topology, operators)
	if err != nil {
		return plan.Difference{}, err
	}
	return difference(play(ctx, 0, func() (*plan.Preview, error) { return plan.NewPreview(turn, l.timing().Tick) }))
}

// WhatIf tells what would become of the present topology and health. It works
// outside of the loop, as Preview does.
func (l *Loop) WhatIf(ctx context.Context, w *plan.WhatIf) (plan.Difference, error) {
	topology, operators := l.opts.Topology.State()
	turn, err := l.turn(ctx, topology, operators)
	if err != nil {
		return plan.Difference{}, err
	}
	if w.Rollback != nil {
		return l.whatIfRolledBack(ctx, turn, w)
	}
	out, err := difference(play(ctx, 0, func() (*plan.Preview, error) { return plan.NewWhatIf(turn, l.timing().Tick, w) }))
	if drain, alone := w.DrainAlone(); alone && err == nil {
		breaches, failed := l.Breaches(ctx, drain)
		out = withRefusals(out, breaches, failed)
	}
	return out, err
}

// whatIfRolledBack tells what a rollback would change. It needs the history, which
// belongs to the loop. Nothing moves after it, because a rollback pauses.
func (l *Loop) whatIfRolledBack(ctx context.Context, turn *plan.Turn, w *plan.WhatIf) (plan.Difference, error) {
	version, err := w.RollbackVersion()
	if err != nil {
		return plan.Difference{}, err
	}
	turn.Paused = turn.Paused.With(plan.Pause{Service: w.Rollback.Service, Since: turn.Now})
	turn.Force = true // the difference shows what would be too much
	type outcome struct {
		plan *plan.Plan
		err  error
	}
	o, err := ask(ctx, l, func() outcome {
		p, err := plan.RolledBack(turn, l.history, version, w.Rollback.Service)
		return outcome{p, err}
	})
	switch {
	case err != nil:
		return plan.Difference{}, err
	case errors.Is(o.err, plan.ErrUnchanged):
		return plan.Compare(turn.Previous, turn.Previous), nil
	case o.err != nil:
		return plan.Difference{}, o.err
	}
	out := plan.Compare(turn.Previous, o.plan)
	if breaches := out.Breaches(); len(breaches) > 0 {
		return withRefusals(out, breaches, nil), nil
	}
	return withLosses(out, l.rollbackBreaches(ctx, version, plan.Pause{Service: w.Rollback.Service})), nil
}

// withLosses tells what the check of a rollback found.
func withLosses(d plan.Difference, found error) plan.Difference {
	if tooMuch, ok := errors.AsType[*plan.TooMuchError](found); ok {
		return withRefusals(d, tooMuch.Breaches, nil)
	}
	return withRefusals(d, nil, found)
}

// withRefusals tells for which reasons the server would refuse what was asked about, or
// why they are not known.
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

// turn is one that begins now, with nothing reported.
func (l *Loop) turn(ctx context.Context, topology *isobar.Topology, operators health.Table) (*plan.Turn, error) {
	return ask(ctx, l, func() *plan.Turn {
		current := l.Current()
		return &plan.Turn{
			Now: time.Now(), Interval: l.timing().Interval, Watched: watched(l.opts.Clients.Subscriptions(), nil), Paused: current.Paused,
			Previous: current, Version: current.Version + 1, Topology: topology, Health: l.keeper.Table(operators),
		}
	})
}

// play plays a preview, for so many ticks at the most; 0 = until it has settled.
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
