package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestBackendHangs: what is under way and what comes while it hangs, health
// checks too, gets no answer; what can still wait when that ends is answered.
func TestBackendHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, dial := inMemory(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 1, ServiceTime: 50 * time.Millisecond, MaxQueue: 10})
		conn := dial()
		health := healthpb.NewHealthClient(conn)
		check := func(ctx context.Context) error {
			resp, err := health.Check(ctx, &healthpb.HealthCheckRequest{})
			if err == nil && resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				return errors.New(resp.GetStatus().String())
			}
			return err
		}
		if err := check(t.Context()); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() { answered <- serve(t.Context(), conn) }()
		synctest.Wait()
		if b.Arrivals() != 1 {
			t.Errorf("%d requests are under way, want 1", b.Arrivals())
		}
		b.Hang()
		b.Hang()
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for name, call := range map[string]func() error{
			"health":  func() error { return check(short) },
			"request": func() error { return serve(short, dial()) }, // on a new connection
		} {
			wg.Go(func() {
				if err := call(); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("%s while it hangs: %v", name, err)
				}
			})
		}
		wg.Wait()
		select {
		case err := <-answered:
			t.Errorf("answered while it hangs: %v", err)
		default:
		}
		b.Resume()
		b.Resume()
		if err := <-answered; err != nil {
			t.Errorf("the request that could wait: %v", err)
		}
		if err := errors.Join(check(t.Context()), serve(t.Context(), conn)); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestBackendDiesWhileItHangs: nothing keeps it from ending.
func TestBackendDiesWhileItHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, dial := inMemory(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 1, ServiceTime: time.Millisecond, MaxQueue: 10})
		conn := dial()
		b.Hang()
		errs := make(chan error, 2)
		for range cap(errs) {
			go func() { errs <- serve(t.Context(), conn) }()
		}
		synctest.Wait()
		if b.Arrivals() != 2 {
			t.Errorf("%d requests have arrived, want all", b.Arrivals())
		}
		b.Kill()
		for range cap(errs) {
			if err := <-errs; status.Code(err) != codes.Unavailable {
				t.Errorf("a request to a backend that dies while it hangs: %v", err)
			}
		}
	})
}

// TestHangIsFound: with the real server and real checkers a backend that hangs
// is found, drained and used again, whatever the mode, and every failure of
// the run belongs somewhere. How soon is not judged here: it depends on what else
// the machine does, so that the backend hangs longer from attempt to attempt.
func TestHangIsFound(t *testing.T) {
	t.Parallel()
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			atLast(t, func(attempt int) []string {
				s := fleet.DefaultScenario()
				s.Service = fmt.Sprintf("hangs-%s-%d", mode, attempt)
				s.Slot = 500 * time.Millisecond
				s.Deadline = time.Second
				for i := range s.Zones {
					s.Zones[i].Rate /= 4
				}
				s.Step.Rate = s.Zones[0].Rate // no step
				s.Hang.After, s.Hang.For = 0, time.Duration(attempt)*5*time.Second
				s.WarmUp, s.OnStep, s.Recover, s.OnLoss = 2*time.Second, 3*s.Slot, s.Hang.For+25*time.Second, 3*s.Slot
				o := playHang(t, s, mode)
				partitioned(t, &o)
				return hangFaults(&o, &s)
			})
		})
	}
}

// hangFaults is what is not as it should be.
func hangFaults(o *fleet.Outcome, s *fleet.Scenario) []string {
	wrong := fleet.Judge([]fleet.Outcome{{
		Mode: isobar.ModeFull, Step: fleet.PhaseOutcome{Settled: true}, Loss: fleet.PhaseOutcome{Settled: true}, Hang: o.Hang,
	}}).Why
	h := o.Hang
	if h.Zone != s.Hang.Zone || h.As != isobar.Timeout || h.Failed == 0 {
		wrong = append(wrong, fmt.Sprintf("found %s in %s, %d requests lost; want timeout in %s, and some", h.As, h.Zone, h.Failed, s.Hang.Zone))
	}
	if h.FoundSeconds <= 0 || h.FoundSeconds >= h.Seconds || h.BackSeconds <= 0 || h.DrainedSeconds <= 0 {
		wrong = append(wrong, fmt.Sprintf("moments of %+v", h))
	}
	return wrong
}

// playHang plays a scenario until a backend that hung is back in use.
func playHang(t *testing.T, s fleet.Scenario, mode isobar.Mode) fleet.Outcome {
	t.Helper()
	run, err := fleet.Start(t.Context(), s, mode, fleet.ServeIsobar)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run.Play(ctx, func(fleet.Frame) {
		if run.Outcome().Hang.Back {
			cancel()
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	run.StopLoad()
	return run.Outcome()
}

func TestStartRefusesBadHangs(t *testing.T) {
	breakers := map[string]func(*fleet.Scenario){
		"nobody finds it": func(s *fleet.Scenario) { s.Checkers = nil },
		"unknown zone":    func(s *fleet.Scenario) { s.Hang.Zone = isobar.MustLocality("x/y") },
		"too short":       func(s *fleet.Scenario) { s.Hang.For = time.Second },
		"too long":        func(s *fleet.Scenario) { s.Hang.For = s.Recover - s.Deadline },
		"too early":       func(s *fleet.Scenario) { s.Hang.After = -time.Second },
	}
	for name, breaker := range breakers {
		s := fleet.DefaultScenario()
		breaker(&s)
		if run, err := fleet.Start(t.Context(), s, isobar.ModeFull, startPlainFailover(t)); err == nil {
			t.Errorf("%s: no error", name)
			_ = run.Close()
		}
	}
}

func TestJudgeHang(t *testing.T) {
	good := fleet.HangOutcome{
		Zone: zoneA, Seconds: 7, Found: true, FoundSeconds: 2, As: isobar.Timeout,
		Drained: true, DrainedSeconds: 2.1, Failed: 170, Back: true, BackSeconds: 1.5,
	}
	cases := map[string]struct {
		change func(h *fleet.HangOutcome)
		why    string
	}{
		"good":         {change: func(*fleet.HangOutcome) {}},
		"nothing hung": {change: func(h *fleet.HangOutcome) { *h = fleet.HangOutcome{} }},
		"not found": {
			change: func(h *fleet.HangOutcome) { h.Found = false },
			why:    "health checkers did not find the backend in r/a that hung for 7 s",
		},
		"not drained": {
			change: func(h *fleet.HangOutcome) { h.Drained = false },
			why:    "the backend in r/a that hung was found after 2.0 s but still got requests",
		},
		"not back": {
			change: func(h *fleet.HangOutcome) { h.Back = false },
			why:    "the backend in r/a that had hung got no more requests",
		},
	}
	for name, c := range cases {
		h := good
		c.change(&h)
		settled := fleet.PhaseOutcome{Settled: true}
		v := fleet.Judge([]fleet.Outcome{{Mode: isobar.ModeFull, Step: settled, Loss: settled, Hang: h}})
		if v.OK != (c.why == "") || (c.why != "" && (len(v.Why) != 1 || v.Why[0] != c.why)) {
			t.Errorf("%s: ok %v, why %q; want %q", name, v.OK, v.Why, c.why)
		}
	}
}
