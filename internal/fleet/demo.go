package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/isobar-xds/isobar"
)

// Compare plays the scenario in mode observe, which is plain locality
// failover, and then in mode full, each with a fleet of its own, and judges
// them. frame is called after every slot (nil = not). With keep the second
// fleet goes on running and is returned, else kept is nil.
func Compare(ctx context.Context, s Scenario, start StartManagement, frame func(Frame), keep bool) (v Verdict, kept *Run, err error) {
	var outcomes []Outcome
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		last := mode == isobar.ModeFull
		outcome, run, err := play(ctx, s, mode, start, frame, keep && last)
		if err != nil {
			return Verdict{}, nil, fmt.Errorf("mode %s: %w", mode, err)
		}
		outcomes, kept = append(outcomes, outcome), run
	}
	return Judge(outcomes), kept, nil
}

// play plays the scenario once. The fleet is returned when it is kept.
func play(ctx context.Context, s Scenario, mode isobar.Mode, start StartManagement, frame func(Frame), keep bool) (o Outcome, kept *Run, err error) {
	run, err := Start(ctx, s, mode, start)
	if err != nil {
		return Outcome{}, nil, err
	}
	defer func() {
		if kept == nil {
			err = errors.Join(err, run.Close())
		}
	}()
	if err := run.Play(ctx, frame); err != nil {
		return Outcome{}, nil, err
	}
	if keep {
		// The load goes on, but what was due in time still counts.
		if err := run.answered(ctx); err != nil {
			return Outcome{}, nil, err
		}
		return run.Outcome(), run, nil
	}
	run.StopLoad()
	return run.Outcome(), nil, nil
}
