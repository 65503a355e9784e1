package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// fullDisk is a store that keeps what it has, and takes nothing more while the
// disk is full.
type fullDisk struct {
	store.Store

	full atomic.Bool
}

func (d *fullDisk) CompareAndSwap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error) {
	return d.CompareAndSwapNotify(ctx, key, revision, data, func() {})
}

func (d *fullDisk) CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error) {
	if d.full.Load() {
		return 0, errors.New("write: no space left on device")
	}
	return d.Store.CompareAndSwapNotify(ctx, key, revision, data, written)
}

// TestStatusTellsWhatNeedsAttention: nothing while nothing needs attention; a state
// that can't be written, overload and dead zones when there are any; and
// nothing again when they are over.
func TestStatusTellsWhatNeedsAttention(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		defer func() { _ = memory.Close() }()
		disk := &fullDisk{Store: memory}
		cfg := configuration(t)
		cfg.Admin.Writable = true
		runLogged(t, cfg, disk, slog.New(slog.DiscardHandler), func(w *world) {
			w.start(everywhere(300)...)
			for range 10 {
				w.tick()
			}
			var s admin.Status
			if w.read("127.0.0.1", "/v1/status", &s); !s.OK || s.Clients.Total != 20 || s.Clients.InSync != 20 || s.Services != 1 || s.Coverage < 0.99 {
				t.Errorf("in order: %+v", s)
			}
			if s.Demand < 1100 || s.Demand > 1300 {
				t.Errorf("demand %v, want about 1200", s.Demand)
			}
			for e := range 4 {
				w.put("/v1/services/checkout/endpoints/10.0.0."+string(rune('1'+e))+":80/health", "unhealthy")
			}
			disk.full.Store(true)
			before := w.server.Plan().Version
			var out admin.Operated
			if code := w.order("/v1/pause", "", &out); code != 200 || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "no space left") {
				t.Errorf("paused on a full disk: %d %+v", code, out)
			}
			w.tick()
			s = admin.Status{}
			w.read("127.0.0.1", "/v1/status", &s)
			told := strings.Join(admin.AttentionTexts(s.Attention), "\n")
			for _, want := range []string{
				"not saved: the plan: write: no space left on device", "checkout: operators took all endpoints in eu/a out of traffic",
			} {
				if !strings.Contains(told, want) {
					t.Errorf("%q is not among\n%s", want, told)
				}
			}
			if s.OK || len(s.Unsaved) == 0 || len(s.Paused) != 1 || w.server.Plan().Version <= before {
				t.Errorf("on a full disk: %+v", s)
			}
			if testhelp.Metric(t, w.server.Metrics(), "isobar_state_unsaved") != 1 {
				t.Error("no metric tells of the full disk")
			}
			disk.full.Store(false)
			w.order("/v1/resume", "", &out)
			for range 10 {
				w.tick()
			}
			s = admin.Status{}
			if w.read("127.0.0.1", "/v1/status", &s); len(s.Unsaved) != 0 || testhelp.Metric(t, w.server.Metrics(), "isobar_state_unsaved") != 0 {
				t.Errorf("when the disk has room again: %+v", s)
			}
		})
	})
}

// TestWhatAFullDiskRefusedIsWrittenLater: when there is room again all is written
// within a minute, also what does not change any more.
func TestWhatAFullDiskRefusedIsWrittenLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		defer func() { _ = memory.Close() }()
		disk := &fullDisk{Store: memory}
		disk.full.Store(true)
		var told struct {
			Changes []plan.Change `json:"changes"`
		}
		runWorld(t, configuration(t), disk, func(w *world) {
			w.tick()
			disk.full.Store(false)
			for range int(time.Minute / interval) {
				w.tick()
			}
			var s admin.Status
			if w.read("127.0.0.1", "/v1/status", &s); len(s.Unsaved) != 0 {
				t.Errorf("a minute later: %v", s.Unsaved)
			}
			if w.read("127.0.0.1", "/v1/history", &told); len(told.Changes) == 0 {
				t.Fatal("nothing has changed since the start")
			}
		})
		before := len(told.Changes)
		runWorld(t, configuration(t), memory, func(w *world) {
			w.tick()
			if w.read("127.0.0.1", "/v1/history", &told); len(told.Changes) < before {
				t.Errorf("%d changes are known after a restart, %d were before", len(told.Changes), before)
			}
		})
	})
}

// TestStatusTellsOfOverloadThatTheModeKeeps: where the mode keeps more in a
// locality than it can serve, although others have headroom, that needs attention.
func TestStatusTellsOfOverloadThatTheModeKeeps(t *testing.T) {
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		cfg := configuration(t)
		cfg.Services[0].Mode = mode
		inWorld(t, cfg, func(w *world) {
			w.start(clients("us/b", 5, constant(1200))...)
			for range 20 {
				w.tick()
			}
			var s admin.Status
			w.read("127.0.0.1", "/v1/status", &s)
			told := strings.Join(admin.AttentionTexts(s.Attention), "\n")
			if strings.Contains(told, "checkout: the planned load of us/b is 120% of its declared capacity, although other localities have headroom") != (mode == isobar.ModeObserve) {
				t.Errorf("mode %v: %q", mode, told)
			}
		})
	}
}

// TestStatusTellsOfOverloadThatADrainLeft: until the next decision nothing says
// that demand does not fit, but nothing else has room either.
func TestStatusTellsOfOverloadThatADrainLeft(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(clients("us/b", 5, constant(1200))...)
		for range 20 {
			w.tick()
		}
		for _, o := range cfg.Services[0].Localities {
			if o.Locality.String() == "us/b" {
				continue
			}
			for _, e := range o.Endpoints {
				if status, answer := w.put("/v1/services/checkout/endpoints/"+e.Address+"/health", "unhealthy"); status != http.StatusOK {
					t.Fatalf("%s: %d %v", e.Address, status, answer)
				}
			}
		}
		var s admin.Status
		w.read("127.0.0.1", "/v1/status", &s)
		told := strings.Join(admin.AttentionTexts(s.Attention), "\n")
		if strings.Contains(told, "localities have headroom") || !strings.Contains(told, "the planned load of us/b is 120% of its declared capacity, and no other locality has headroom") {
			t.Errorf("%q", told)
		}
	})
}

// TestStartOnAFullDisk: what was saved is served again, although nothing can be
// written.
func TestStartOnAFullDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		defer func() { _ = memory.Close() }()
		disk := &fullDisk{Store: memory}
		cfg := configuration(t)
		cfg.Admin.Writable = true
		var before *plan.Plan
		runWorld(t, cfg, disk, func(w *world) {
			w.start(everywhere(300)...)
			for range 10 {
				before = w.tick()
			}
		})
		disk.full.Store(true)
		runWorld(t, cfg, disk, func(w *world) {
			synctest.Wait()
			first := w.server.Plan()
			sameAssignments(t, before, first)
			if first.Version <= before.Version {
				t.Errorf("version %d after %d", first.Version, before.Version)
			}
			var s admin.Status
			if w.read("127.0.0.1", "/v1/status", &s); s.OK || len(s.Unsaved) == 0 {
				t.Errorf("no alarm: %+v", s)
			}
		})
	})
}
