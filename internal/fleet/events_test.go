//go:build !race

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestEvents plays the demo's two events, each in a fleet of a quarter of the size:
// with the real server until the load has gone where there is room for it, and
// with plain failover until one zone is overloaded while others have room. How
// long that takes is not judged here: it depends on what else the machine does.
//
// The fleets run one after the other and without the race detector, with which a fleet takes half a
// processor: where it gets less, requests pile up and the fleet does not settle.
func TestEvents(t *testing.T) {
	t.Parallel()
	small := fleet.DefaultScenario()
	small.ServiceTime *= 4
	small.Step.Rate /= 4
	for i := range small.Zones {
		small.Zones[i].Rate /= 4
	}
	small.Checkers, small.Hang = nil, fleet.HangEvent{} // load reports alone must do
	small.WarmUp, small.Recover = time.Second, 0
	step, loss := small, small
	step.OnStep, step.OnLoss = time.Minute, 3*time.Second
	loss.OnStep, loss.OnLoss = 3*time.Second, time.Minute
	loss.Step.Rate = small.Zones[0].Rate // as before: no step
	overloaded := func(f *fleet.Frame) bool {
		l, load := f.Now.Fullest()
		return l == small.Step.Zone && load > 1 && f.Now.CrossRegion == 0
	}
	settled := func(f *fleet.Frame) bool {
		_, load := f.Now.Fullest()
		return load < 0.95 && f.Now.Failed == 0 && f.Now.CrossRegion > 0.02
	}
	for _, event := range []struct {
		scenario fleet.Scenario
		phase    string
	}{{step, "step: us-east/a at 130 requests/s"}, {loss, "loss of us-east/b"}} {
		atLast(t, func(attempt int) []string {
			return playUntil(t, event.scenario, attempt, isobar.ModeFull, event.phase, settled)
		})
		atLast(t, func(attempt int) []string {
			return playUntil(t, event.scenario, attempt, isobar.ModeObserve, event.phase, overloaded)
		})
	}
}

// playUntil ends a run with the real server when a condition held for three
// frames of a phase.
func playUntil(t *testing.T, s fleet.Scenario, attempt int, mode isobar.Mode, phase string, ok func(*fleet.Frame) bool) (wrong []string) {
	t.Helper()
	// grpc-go bounds the requests under way per service name in the process.
	s.Service = fmt.Sprintf("%s-%s-%d", mode, phase[:4], attempt)
	run, err := fleet.Start(t.Context(), s, mode, fleet.ServeIsobar)
	if err != nil {
		t.Fatal(err)
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
		return []string{fmt.Sprintf("%s, %s: it never came to that: %v", mode, phase, err)}
	}
	return nil
}
