package control_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestSurveyFollowsReloads: a changed interval counts from the last round on, at
// once, and reloads that change nothing delay no round.
func TestSurveyFollowsReloads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var every atomic.Int64
		every.Store(int64(time.Hour))
		l, stop := start(t, newParts(), func(o *control.Options) {
			o.SurveyEvery = func() time.Duration { return time.Duration(every.Load()) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Survey(ctx)
		}()
		reload := func(interval time.Duration) {
			every.Store(int64(interval))
			l.Retime()
			synctest.Wait()
		}
		var last time.Time
		played := func(what string, want bool) {
			t.Helper()
			at, _ := l.Reserves()
			if got := at.After(last); got != want {
				t.Errorf("%s: a round was played: %v, want %v", what, got, want)
			}
			last = at
		}
		pass(10 * time.Minute)
		played("before the first hour is over", false)
		reload(time.Minute)
		pass(time.Second)
		played("an interval that is over by now", true)
		pass(57 * time.Second)
		played("before the minute is over", false)
		pass(4 * time.Second)
		played("after it", true)
		if _, _, outdated := l.Losses(l.Current()); outdated {
			t.Error("what was played with the change is outdated")
		}
		for range 90 {
			reload(time.Minute)
			pass(time.Second)
		}
		played("with a reload each second", true)
		reload(0)
		if at, _ := l.Reserves(); !at.IsZero() {
			t.Errorf("what was found at %v is told although it is off", at)
		}
		pass(time.Hour)
		played("switched off", false)
		reload(time.Minute)
		pass(time.Second)
		played("switched on", true)
		cancel()
		<-done
		stop()
	})
}

// TestSurveyComesEarlyAfterAChange: a plan with other capacities ends the rest, but not
// before a quarter of the interval; plans that stay alike do not.
func TestSurveyComesEarlyAfterAChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		l, stop := start(t, p, func(o *control.Options) {
			o.SurveyEvery = func() time.Duration { return time.Hour }
		})
		p.serve(web("checkout", 10))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Survey(ctx)
		}()
		var last time.Time
		played := func(what string, want bool) {
			t.Helper()
			at, _, _ := l.Losses(l.Current())
			if got := at.After(last); got != want {
				t.Errorf("%s: a round was played: %v, want %v", what, got, want)
			}
			last = at
		}
		pass(time.Hour + time.Second)
		played("after the interval", true)
		pass(50 * time.Minute)
		played("while nothing changes", false)
		pass(11 * time.Minute)
		played("after the next interval", true)
		larger := web("checkout", 10)
		larger.Localities[0].MaxRate = 2000
		p.serve(larger)
		pass(10 * time.Minute)
		played("before a quarter of the interval", false)
		if _, _, outdated := l.Losses(l.Current()); !outdated {
			t.Error("the capacity doubled, and what was played before is not outdated")
		}
		pass(6 * time.Minute)
		played("after it", true)
		if _, _, outdated := l.Losses(l.Current()); outdated {
			t.Error("what was played with the change is outdated")
		}
		pass(40 * time.Minute)
		played("with the change played", false)
		cancel()
		<-done
		stop()
	})
}
