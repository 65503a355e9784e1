package control

import (
	"context"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Breaches tells what a drain would make too much, and worse than it is: a line
// each, none where what is left keeps its ceilings. It looks some ticks ahead:
// what is drained moves at once.
func (l *Loop) Breaches(ctx context.Context, d plan.Drain) ([]string, error) {
	topology, operators := l.opts.Topology.State()
	turn, err := l.turn(ctx, topology, operators)
	if err != nil {
		return nil, err
	}
	out, err := play(ctx, plan.QuickTicks, func() (*plan.Preview, error) {
		return plan.NewWhatIf(turn, l.timing().Tick, &plan.WhatIf{Drain: []plan.Drain{d}})
	})
	return out.Breaches(), err
}

// BreachesOf tells the same of other services in the place of those of the same
// names.
func (l *Loop) BreachesOf(ctx context.Context, services []isobar.Service) ([]string, error) {
	topology, operators := l.opts.Topology.State()
	turn, err := l.turn(ctx, topology.With(services), operators)
	if err != nil {
		return nil, err
	}
	out, err := play(ctx, plan.QuickTicks, func() (*plan.Preview, error) { return plan.NewPreview(turn, l.timing().Tick) })
	return out.Breaches(), err
}
