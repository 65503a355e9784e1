package control_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestReloadsDelayNoTick: a file that changes more often than ticks come, as one
// does that is made from a template, moves no tick; a period that changed counts
// from the last tick on.
func TestReloadsDelayNoTick(t *testing.T) {
	for _, tc := range []struct {
		name     string
		timing   func(reload int) time.Duration // what the file says of tick
		each     time.Duration                  // between reloads
		min, max uint64                         // ticks in a minute
	}{
		{"the same timing", func(int) time.Duration { return 5 * time.Second }, time.Second, 12, 12},
		{"at each tick", func(int) time.Duration { return 5 * time.Second }, 5 * time.Second, 12, 12},
		{"timing that changes each time", func(n int) time.Duration { return time.Duration(4+n%2) * time.Second }, time.Second, 12, 15},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var reloads atomic.Int64
				l, stop := start(t, newParts(), func(o *control.Options) {
					o.Timing = func() control.Timing {
						return control.Timing{Tick: tc.timing(int(reloads.Load())), Interval: time.Second}
					}
				})
				for range time.Minute / tc.each {
					pass(tc.each)
					reloads.Add(1)
					l.Retime()
					synctest.Wait()
				}
				if n, _ := l.Ticks(); n < tc.min || n > tc.max {
					t.Errorf("%d ticks in a minute, want %d to %d", n, tc.min, tc.max)
				}
				stop()
			})
		})
	}
}

// TestNewPeriodCountsFromTheLastTick: not from the reload on.
func TestNewPeriodCountsFromTheLastTick(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var tick atomic.Int64
		tick.Store(int64(time.Minute))
		l, stop := start(t, newParts(), func(o *control.Options) {
			o.Timing = func() control.Timing {
				return control.Timing{Tick: time.Duration(tick.Load()), Interval: time.Second}
			}
		})
		retime := func(after, period time.Duration) {
			pass(after)
			tick.Store(int64(period))
			l.Retime()
			synctest.Wait()
		}
		count := func(what string, want uint64) {
			t.Helper()
			if n, _ := l.Ticks(); n != want {
				t.Errorf("%s: %d ticks, want %d", what, n, want)
			}
		}
		retime(61*time.Second, 30*time.Second) // a second after the first
		count("a minute", 1)
		pass(28 * time.Second)
		count("a second before the shorter period ends", 1)
		pass(time.Second)
		count("the shorter period", 2)
		retime(20*time.Second, 10*time.Second)
		count("a period that is over by now", 3)
		retime(5*time.Second, time.Minute)
		pass(54 * time.Second)
		count("a second before the longer period ends", 3)
		pass(time.Second)
		count("the longer period", 4)
		stop()
	})
}
