package control_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestVersionsGrowOnAFullDisk: processes that can't write begin with the same
// state one after the other, and yet none of them uses a version again.
func TestVersionsGrowOnAFullDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		p.stored = &plan.Saved{Version: 41, Reserved: 50, Made: time.Now()}
		p.saveErr = errors.New("write: no space left on device")
		last := uint64(50)
		for i := range 3 {
			pass(10 * time.Second)
			l, stop := start(t, p)
			if v := l.Current().Version; v <= last {
				t.Errorf("start %d: the first version is %d, %d was in force before", i, v, last)
			}
			pass(time.Minute)
			last = l.Current().Version
			stop()
		}
		p.saveErr = nil
		l, stop := start(t, p)
		before := l.Current().Version
		stop()
		if saved := p.saved[len(p.saved)-1]; saved.Reserved < before {
			t.Errorf("with room again %d versions are reserved, %d is in force", saved.Reserved, before)
		}
	})
}

// TestTheLogTellsOfAFullDiskOnce, and when it is over.
func TestTheLogTellsOfAFullDiskOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, log := newParts(), &testhelp.Log{}
		_, stop := start(t, p, func(o *control.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
		fill := func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.saveErr = err
		}
		fill(errors.New("write: no space left on device"))
		pass(5 * time.Minute)
		if n := strings.Count(log.String(), `what="the plan" error="write: no space left on device"`); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}
		fill(errors.New("open: read-only file system"))
		pass(5 * time.Minute)
		if n := strings.Count(log.String(), `what="the plan" error="open: read-only file system"`); n != 1 {
			t.Errorf("another reason is told %d times:\n%s", n, log.String())
		}
		fill(nil)
		pass(5 * time.Minute)
		if n := strings.Count(log.String(), `msg="saving state works again" what="the plan"`); n != 1 {
			t.Errorf("the end of it is told %d times:\n%s", n, log.String())
		}
		stop()
	})
}

// TestUnsavedEndsSoon: without a change, too, the status says soon that the disk can be
// written again. A disk that works is not written more often than before.
func TestUnsavedEndsSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		l, stop := start(t, p)
		fill := func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.saveErr = err
		}
		pass(5 * time.Minute)
		p.mu.Lock()
		saved := len(p.saved)
		p.mu.Unlock()
		if most := 2 + 2 + 5*60/30; saved > most {
			t.Errorf("%d plans saved in 5 minutes without a change, want at most %d", saved, most)
		}
		for range 3 {
			fill(errors.New("open: read-only file system"))
			pass(65 * time.Second)
			if got := l.Unsaved(); len(got) != 2 {
				t.Errorf("while the disk is full: %q", got)
			}
			fill(nil)
			pass(7 * time.Second) // 5 s and a tick
			if got := l.Unsaved(); len(got) > 0 {
				t.Errorf("7 s after the disk can be written: %q", got)
			}
		}
		stop()
	})
}
