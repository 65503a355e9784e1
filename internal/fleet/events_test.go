package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestEvents plays the demo's two events, each in a fleet of half the size:
// with the real server until the load has gone where there is room for it, and
// with plain failover until one zone is overloaded while others have room. How
// long that takes is not judged here: it depends on what else the machine does.
//
// All four run at once: they are mostly waiting.
func TestEvents(t *testing.T) {
	t.Parallel()
	half := fleet.DefaultScenario()
	half.ServiceTime *= 2
	half.Step.Rate /= 2
	for i := range half.Zones {
		half.Zones[i].Rate /= 2
	}
	half.Checkers, half.Hang = nil, fleet.HangEvent{} // load reports alone must do
	half.WarmUp, half.Recover = time.Second, 0
	step, loss := half, half
	step.OnStep, step.OnLoss = 5*time.Minute, 3*time.Second
	loss.OnStep, loss.OnLoss = 3*time.Second, 5*time.Minute
	loss.Step.Rate = half.Zones[0].Rate // as before: no step
	overloaded := func(f *fleet.Frame) bool {
		l, load := f.Now.Fullest()
		return l == half.Step.Zone && load > 1 && f.Now.CrossRegion == 0
	}
	settled := func(f *fleet.Frame) bool {
		_, load := f.Now.Fullest()
		return load < 0.95 && f.Now.Failed == 0 && f.Now.CrossRegion > 0.02
	}
	for _, event := range []struct {
		scenario fleet.Scenario
		phase    string
	}{{step, "step: us-east/a at 260 requests/s"}, {loss, "loss of us-east/b"}} {
		// Two fleets at a time: with four, a busy machine falls ever further behind.
		var runs sync.WaitGroup
		runs.Go(func() { playUntil(t, event.scenario, isobar.ModeFull, event.phase, settled) })
		runs.Go(func() { playUntil(t, event.scenario, isobar.ModeObserve, event.phase, overloaded) })
		runs.Wait()
	}
}

// playUntil ends a run with the real server when a condition held for three
// frames of a phase.
func playUntil(t *testing.T, s fleet.Scenario, mode isobar.Mode, phase string, ok func(*fleet.Frame) bool) {
	t.Helper()
	// grpc-go bounds the requests under way per service name in the process.
	s.Service = mode.String() + "-" + phase[:4]
	run, err := fleet.Start(t.Context(), s, mode, fleet.ServeIsobar)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}()
	if run.Admin() == "" {
		t.Error("no admin address")
	}
	held := errors.New("held")
	ctx, cancel := context.WithCancelCause(t.Context())
	good := 0
	err = run.Play(ctx, func(f fleet.Frame) {
		line := fmt.Sprintf("%3v %s", f.At, f.Phase)
		for i := range f.Now.Zones {
			line += fmt.Sprintf("  %s %.0f%%", f.Now.Zones[i].Locality, 100*f.Now.Zones[i].Load)
		}
		t.Logf("%s %s  p99 %v  failed %d  late %v", mode, line, f.Now.P99, f.Now.Failed, f.Now.Late)
		if f.Phase != phase || !ok(&f) {
			good = 0
			return
		}
		if good++; good == 3 {
			cancel(held)
		}
	})
	if !errors.Is(err, held) {
		t.Errorf("it never came to that: %v", err)
	}
}
