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
	turn, err := ask(ctx, l, func() *plan.Turn {
		current := l.Current()
		return &plan.Turn{
			Now: time.Now(), Interval: l.timing().Interval, Watched: watched(l.opts.Clients.Subscriptions()), Paused: current.Paused,
			Previous: current, Version: current.Version + 1, Topology: topology, Health: l.keeper.Table(operators),
		}
	})
	if err != nil {
		return plan.Difference{}, err
	}
	return preview(ctx, turn, l.timing().Tick)
}

func preview(ctx context.Context, turn *plan.Turn, tick time.Duration) (_ plan.Difference, err error) {
	defer func() {
		if r := recover(); r != nil { // a defect must not end a server that publishes nothing of this
			err = errors.New("the preview failed by a defect")
		}
	}()
	started := time.Now()
	p, err := plan.NewPreview(turn, tick)
	for more := true; more && err == nil; {
		if err = ctx.Err(); err == nil {
			more, err = p.Step()
		}
		if p.First != nil && time.Since(started) > previewPatience {
			more = false
		}
	}
	if err != nil {
		return plan.Difference{}, err
	}
	return p.Difference(), nil
}
