package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// errUnplayed says that a drain could not be looked at in full.
var errUnplayed = errors.New("there was no time to simulate the loss of each zone")

// Breaches lists the limits that a drain would exceed, and exceed further than the present does:
// a line each, none if the remaining capacity keeps its ceilings, also without one more zone if
// it could do that before. It looks some ticks ahead: drained load moves at once.
func (v *previews) Breaches(ctx context.Context, d plan.Drain) ([]string, error) {
	turn, err := v.now(ctx)
	if err != nil {
		return nil, err
	}
	return v.breaches(ctx, turn, func() (*plan.Preview, error) {
		return plan.NewWhatIf(turn, v.tick(), &plan.WhatIf{Drain: []plan.Drain{d}})
	})
}

// BreachesOf tells the same of other services instead of those of the same
// names.
func (v *previews) BreachesOf(ctx context.Context, services []isobar.Service) ([]string, error) {
	turn, err := v.now(ctx)
	if err != nil {
		return nil, err
	}
	changed := *turn
	changed.Topology = turn.Topology.With(services)
	return v.breaches(ctx, turn, func() (*plan.Preview, error) { return plan.NewPreview(&changed, v.tick()) })
}

// breaches plays the input of begin, and compares it with the present.
func (v *previews) breaches(ctx context.Context, present *plan.Turn, begin func() (*plan.Preview, error)) ([]string, error) {
	deadline := time.Now().Add(previewPatience)
	p, err := play(ctx, plan.QuickTicks, begin)
	if err != nil {
		return nil, err
	}
	difference := p.Difference()
	if out := difference.Breaches(); len(out) > 0 || v.opts.SurveyEvery == nil || v.opts.SurveyEvery() <= 0 {
		return out, nil
	}
	out, err := v.unstood(ctx, present, p.Survey(), deadline)
	return ofReserve(&difference, out), err
}

// ofReserve says first, where it is so, that nothing breaks at once, and only the loss of one more zone
// would.
func ofReserve(d *plan.Difference, breaches []string) []string {
	if len(breaches) == 0 || !d.Fits() {
		return breaches
	}
	out := slices.Clone(breaches)
	out[0] = plan.NoReserve + out[0]
	return out
}

// unstood returns the services of a survey that would no longer survive the loss of a zone, and
// survive it in the present, the worst first.
func (v *previews) unstood(ctx context.Context, present *plan.Turn, survey *plan.Survey, deadline time.Time) ([]string, error) {
	after, err := v.losses(ctx, survey, deadline)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(after, func(_ string, r *plan.Reserve) bool { return r.Stands() })
	if len(after) == 0 {
		return nil, nil
	}
	// A fleet that could not survive a loss before can't blame this.
	now := plan.NewSurvey(present, v.tick())
	now.Only(func(name string) bool { return after[name] != nil })
	before, err := v.losses(ctx, now, deadline)
	if err != nil {
		return nil, err
	}
	var worst []*plan.Reserve
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if was := before[name]; was != nil && was.Stands() {
			worst = append(worst, after[name])
		}
	}
	slices.SortStableFunc(worst, func(a, b *plan.Reserve) int { return b.Worse(a) })
	var out []string
	for _, r := range worst {
		out = append(out, r.Breach())
	}
	return out, nil
}

// rollbackBreaches returns a [*plan.TooMuchError] where a rollback would take the
// reserve for the loss of a zone away: weights are frozen by it, so that after a loss
// they are only scaled up. Any other reason against it is told when it is done.
func (v *previews) rollbackBreaches(ctx context.Context, version uint64, pause plan.Pause) error {
	if v.opts.SurveyEvery == nil || v.opts.SurveyEvery() <= 0 {
		return nil
	}
	present, err := v.now(ctx)
	if err != nil {
		return err
	}
	pause.Since = present.Now
	after := *present
	after.Paused = after.Paused.With(pause)
	p, _, err := v.loop.rolledBack(ctx, &after, version, pause.Service)
	if err != nil || p == nil {
		return err
	}
	after.Previous, after.Version = p, p.Version+1
	survey := plan.NewSurvey(&after, v.tick())
	survey.Only(func(name string) bool {
		was, had := present.Previous.Service(name)
		is, has := p.Service(name)
		return had && has && was != is
	})
	breaches, err := v.unstood(ctx, present, survey, time.Now().Add(previewPatience))
	if err == nil && len(breaches) > 0 {
		err = &plan.TooMuchError{Breaches: breaches, Loss: true}
	}
	return err
}

// losses plays the loss of each zone, and returns the worst by service.
func (v *previews) losses(ctx context.Context, survey *plan.Survey, deadline time.Time) (map[string]*plan.Reserve, error) {
	for more := true; more; {
		var err error
		if more, err = v.step(survey); err != nil {
			return nil, err
		}
		if err = ctx.Err(); err == nil && more && time.Now().After(deadline) {
			err = errUnplayed
		}
		if err != nil {
			return nil, err
		}
	}
	out := map[string]*plan.Reserve{}
	for _, r := range survey.Reserves() {
		out[r.Service] = &r
	}
	return out, nil
}

// step plays a loss. An internal error costs the services that it was played for.
func (v *previews) step(s *plan.Survey) (more bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			v.panicked()
			v.opts.Log.Error("zone loss simulation failed", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			s.Skip()
			more, err = true, errors.New("an internal error")
		}
	}()
	return s.Step()
}
