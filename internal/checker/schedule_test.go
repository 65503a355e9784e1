package checker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func every(d time.Duration) *corev3.HealthCheck {
	return check(func(hc *corev3.HealthCheck) {
		hc.Interval, hc.NoTrafficInterval, hc.Timeout = durationpb.New(d), nil, durationpb.New(time.Second)
	})
}

// calm is a specifier with few reports, which nobody reads.
func calm(clusters ...*clusterHealthCheck) *specifier {
	sp := spec(clusters...)
	sp.Interval = durationpb.New(time.Minute)
	return sp
}

func addresses(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1)
	}
	return out
}

// TestSpread: 200 endpoints at 5 s are probed evenly over the interval, from
// the second probe on, and each every 5 s.
func TestSpread(t *testing.T) {
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		s := w.stream()
		began := time.Now()
		s.specify(t, calm(cluster("c", every(5*time.Second), addresses(200)...)))
		<-time.After(30 * time.Second)
		var buckets [10]int
		for _, a := range addresses(200) {
			times := sc.times(a)
			if len(times) < 6 || len(times) > 8 {
				t.Fatalf("%s was probed %d times in 30s at 5s", a, len(times))
			}
			if late := times[0].Sub(began); late > 2100*time.Millisecond {
				t.Errorf("%s was first probed after %s", a, late)
			}
			for _, at := range times {
				if since := at.Sub(began); since >= 15*time.Second && since < 25*time.Second {
					buckets[since%(5*time.Second)/(500*time.Millisecond)]++
				}
			}
		}
		for i, n := range buckets {
			if n < 30 || n > 50 {
				t.Errorf("half-second %d of the interval has %d of 400 probes: %v", i, n, buckets)
				break
			}
		}
	})
}

// TestIntervals: which interval counts when.
func TestIntervals(t *testing.T) {
	seconds := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }
	for _, tt := range []struct {
		name    string
		outcome checker.Outcome
		change  func(*corev3.HealthCheck)
		least   time.Duration
		most    time.Duration
	}{
		{"interval", checker.Passed, func(*corev3.HealthCheck) {}, 10 * time.Second, 10 * time.Second},
		{"no traffic", checker.Passed, func(hc *corev3.HealthCheck) { hc.NoTrafficInterval = seconds(3) }, 3 * time.Second, 3 * time.Second},
		{"no traffic, healthy", checker.Passed, func(hc *corev3.HealthCheck) {
			hc.NoTrafficInterval, hc.NoTrafficHealthyInterval = seconds(3), seconds(7)
		}, 7 * time.Second, 7 * time.Second},
		{"no traffic, unhealthy", checker.Broken, func(hc *corev3.HealthCheck) {
			hc.NoTrafficInterval, hc.NoTrafficHealthyInterval, hc.UnhealthyInterval = seconds(3), seconds(7), seconds(1)
		}, 3 * time.Second, 3 * time.Second},
		{"unhealthy", checker.Broken, func(hc *corev3.HealthCheck) { hc.UnhealthyInterval = seconds(2) }, 2 * time.Second, 2 * time.Second},
		{"jitter", checker.Passed, func(hc *corev3.HealthCheck) { hc.IntervalJitter = seconds(2) }, 10 * time.Second, 12 * time.Second},
		{"jitter in percent", checker.Passed, func(hc *corev3.HealthCheck) { hc.IntervalJitterPercent = 50 }, 10 * time.Second, 15 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(w *world, sc *script) {
				t := w.t
				hc := every(10 * time.Second)
				tt.change(hc)
				sc.set(a1, tt.outcome)
				s := w.stream()
				s.specify(t, calm(cluster("c", hc, a1)))
				<-time.After(2 * time.Minute)
				times := sc.times(a1)
				if len(times) < 6 {
					t.Fatalf("%d probes in 2 minutes", len(times))
				}
				for i := 3; i < len(times); i++ {
					if got := times[i].Sub(times[i-1]); got < tt.least || got > tt.most {
						t.Errorf("waited %s, want %s to %s", got, tt.least, tt.most)
					}
				}
			})
		})
	}
}

// TestMaxProbes: endpoints that hang take turns, and do not hold up others for
// longer than the turns take.
func TestMaxProbes(t *testing.T) {
	registry := prometheus.NewRegistry()
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		all := addresses(100)
		for _, a := range all[:99] {
			sc.set(a, checker.TimedOut)
		}
		s := w.stream()
		s.specify(t, calm(cluster("c", every(5*time.Second), all...)))
		<-time.After(time.Minute)
		if _, most := sc.count(); most != 10 {
			t.Errorf("%d probes at once, want 10", most)
		}
		if got := len(sc.times(all[99])); got < 3 {
			t.Errorf("an endpoint beside 99 that hang was probed %d times in a minute", got)
		}
		if got := testhelp.Metric(t, registry, "isobar_checker_late_probes_total"); got == 0 {
			t.Error("late probes are not counted")
		}
	}, func(o *checker.Options) { o.MaxProbes, o.Registerer = 10, registry })
}

// TestMaxEndpoints: what is too much is left out and counted.
func TestMaxEndpoints(t *testing.T) {
	registry := prometheus.NewRegistry()
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		s := w.stream()
		s.specify(t, spec(cluster("c", check(nil), addresses(6)...), cluster("d", check(nil), addresses(6)...), cluster("e", check(nil), a1)))
		s.until(t, "e", a1, healthy)
		if _, ok := statusIn(s.next(t), "d", addresses(1)[0]); ok {
			t.Error("a cluster beyond the limit is probed")
		}
		if got := testhelp.Metric(t, registry, "isobar_checker_over_limit_endpoints_total"); got != 6 {
			t.Errorf("%v endpoints counted as too many, want 6", got)
		}
	}, func(o *checker.Options) { o.MaxEndpoints, o.Registerer = 10, registry })
}

// wild panics.
type wild struct{ always }

func (wild) Probe(context.Context) (checker.Outcome, error) { panic("wild") }

// TestDefect: a probe that panics fails alone.
func TestDefect(t *testing.T) {
	registry := prometheus.NewRegistry()
	var mu sync.Mutex
	made := 0
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		s := w.stream()
		s.specify(t, spec(cluster("c", check(nil), a1, a2)))
		s.until(t, "c", a2, healthy)
		if got, _ := statusIn(s.next(t), "c", a1); got != unhealthy {
			t.Errorf("an endpoint whose probe panics is %s", got)
		}
		if testhelp.Metric(t, registry, "isobar_checker_panics_total") == 0 {
			t.Error("a defect is not counted")
		}
	}, func(o *checker.Options) {
		o.Registerer = registry
		o.NewProber = func(to checker.Target, _ *corev3.HealthCheck) (checker.Prober, error) {
			mu.Lock()
			defer mu.Unlock()
			made++
			if to.Address == a1 {
				return wild{}, nil
			}
			return always(checker.Passed), nil
		}
	})
}
