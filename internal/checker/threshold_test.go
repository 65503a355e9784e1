package checker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// stepped is a prober whose every probe waits for the test to say how it ends.
type stepped chan checker.Outcome

func (s stepped) Probe(ctx context.Context) (checker.Outcome, error) {
	select {
	case out := <-s:
		if out == checker.Passed {
			return out, nil
		}
		return out, errors.New("as the test says")
	case <-ctx.Done():
		return checker.TimedOut, ctx.Err()
	}
}

func (s stepped) Close() {}

// TestThresholds reads tables: outcomes in order (P passed, F failed, B broken,
// T timed out) and the status reported after each (H, U, T).
func TestThresholds(t *testing.T) {
	for _, tt := range []struct {
		name      string
		unhealthy uint32
		healthy   uint32
		outcomes  string
		reported  string
	}{
		{"the first probe of all decides", 3, 2, "P", "H"},
		{"after a failure the threshold counts", 3, 2, "BPP", "UUH"},
		{"a pass between failures begins anew", 3, 2, "PBBPBBPBBB", "HHHHHHHHHU"},
		{"a failure between passes begins anew", 1, 3, "BPPBPPP", "UUUUUUH"},
		{"timeouts count, and show", 2, 2, "PTTPP", "HHTTH"},
		{"a new endpoint that times out shows it at once", 3, 2, "TTBT", "TTUT"},
		{"the last failure is what shows", 3, 1, "PBBTBTP", "HHHTUTH"},
		{"an answer that says no counts at once", 3, 2, "PFPP", "HUUH"},
		{"threshold 1", 1, 1, "PBPTPB", "HUHTHU"},
		{"mixed failures count together", 3, 1, "PBTB", "HHHU"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				steps := make(stepped)
				w := start(t, func(o *checker.Options) {
					o.NewProber = func(checker.Target, *corev3.HealthCheck) (checker.Prober, error) { return steps, nil }
				})
				s := w.stream()
				hc := check(func(hc *corev3.HealthCheck) {
					hc.Timeout = durationpb.New(10 * time.Minute)
					hc.UnhealthyThreshold, hc.HealthyThreshold = wrapperspb.UInt32(tt.unhealthy), wrapperspb.UInt32(tt.healthy)
				})
				s.specify(t, spec(cluster("c", hc, "192.0.2.1:80")))
				if got, _ := statusIn(s.next(t), "c", "192.0.2.1:80"); got != unhealthy {
					t.Fatalf("before the first probe: %s", got)
				}
				var got strings.Builder
				for _, o := range tt.outcomes {
					steps <- map[rune]checker.Outcome{'P': checker.Passed, 'F': checker.Failed, 'B': checker.Broken, 'T': checker.TimedOut}[o]
					synctest.Wait()
					for len(s.reports) > 0 {
						<-s.reports
					}
					status, _ := statusIn(s.next(t), "c", "192.0.2.1:80")
					got.WriteString(map[corev3.HealthStatus]string{healthy: "H", unhealthy: "U", timeout: "T"}[status])
				}
				if got.String() != tt.reported {
					t.Errorf("outcomes %s: reported %s, want %s", tt.outcomes, got.String(), tt.reported)
				}
				w.stop()
			})
		})
	}
}

// TestSeveralChecks: an endpoint is healthy only if all its checks say so, and
// unhealthy rather than timed out.
func TestSeveralChecks(t *testing.T) {
	for _, tt := range []struct {
		outcomes [2]checker.Outcome
		want     corev3.HealthStatus
	}{
		{[2]checker.Outcome{checker.Passed, checker.Passed}, healthy},
		{[2]checker.Outcome{checker.Passed, checker.Broken}, unhealthy},
		{[2]checker.Outcome{checker.TimedOut, checker.Passed}, timeout},
		{[2]checker.Outcome{checker.TimedOut, checker.Failed}, unhealthy},
	} {
		t.Run(fmt.Sprint(tt.outcomes), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := start(t, func(o *checker.Options) {
					o.NewProber = func(_ checker.Target, hc *corev3.HealthCheck) (checker.Prober, error) {
						return always(tt.outcomes[len(hc.GetName())-1]), nil
					}
				})
				s := w.stream()
				c := cluster("c", check(func(hc *corev3.HealthCheck) { hc.Name = "1" }), "192.0.2.1:80")
				c.HealthChecks = append(c.HealthChecks, check(func(hc *corev3.HealthCheck) { hc.Name = "22" }))
				s.specify(t, spec(c))
				<-time.After(time.Second)
				s.until(t, "c", "192.0.2.1:80", tt.want)
				w.stop()
			})
		})
	}
}

// always has one outcome.
type always checker.Outcome

func (a always) Probe(context.Context) (checker.Outcome, error) {
	if checker.Outcome(a) == checker.Passed {
		return checker.Passed, nil
	}
	return checker.Outcome(a), errors.New("always")
}

func (a always) Close() {}
