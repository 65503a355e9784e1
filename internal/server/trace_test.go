package server_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// traced is a configuration with a rolling trace.
func traced(t *testing.T, keep time.Duration, most int64) *config.Config {
	t.Helper()
	cfg := configuration(t)
	cfg.Trace = &config.Trace{Directory: filepath.Join(t.TempDir(), "deep", "trace"), Keep: keep, MaxBytes: most}
	return cfg
}

// files reads the files of a rolling trace, in order.
func files(t *testing.T, dir string) (all [][]byte, bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
		bytes += int64(len(data))
	}
	return all, bytes
}

// TestRollingTrace: each file is decided again by itself, together they miss
// nothing of the time that is kept, up to the last plan of a server that stops,
// and what is older is gone.
func TestRollingTrace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := traced(t, 10*time.Minute, 1<<30)
		var last uint64
		runWorld(t, cfg, kept, func(w *world) {
			w.start(growing(time.Now().Add(3 * time.Minute))...)
			w.settle(25 * time.Minute)
			other := w.record() // an operator's, beside it
			last = w.settle(time.Minute).Version
			replayOf(t, other.end(t))
			all, size := files(t, cfg.Trace.Directory)
			if got := testhelp.Metric(t, w.server.Metrics(), "isobar_trace_bytes"); int64(got) != size || testhelp.Metric(t, w.server.Metrics(), "isobar_trace_recording") != 1 {
				t.Errorf("%v bytes are told of %d files, they have %d", got, len(all), size)
			}
		})
		all, _ := files(t, cfg.Trace.Directory)
		whole := replayOf(t, bytes.Join(all, nil))
		if n := len(all); n < 10 || n > 13 || whole.segments != n {
			t.Errorf("%d files with %d recordings", n, whole.segments)
		}
		for i, v := range whole.plans {
			if i > 0 && v != whole.plans[i-1]+1 {
				t.Errorf("plan %d follows %d", v, whole.plans[i-1])
			}
		}
		if end := whole.plans[len(whole.plans)-1]; end < last || len(whole.plans) < 115 {
			t.Errorf("%d plans, the last is %d, want %d", len(whole.plans), end, last)
		}
		for _, data := range all {
			replayOf(t, data)
		}
	})
}

// TestRollingTraceStaysInItsSize: at no time is there more than it may take.
func TestRollingTraceStaysInItsSize(t *testing.T) {
	const most = 150_000
	cfg := traced(t, 24*time.Hour, most)
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(300)...)
		for range 60 {
			w.settle(time.Minute)
			if _, size := files(t, cfg.Trace.Directory); size > most {
				t.Fatalf("%d bytes", size)
			}
		}
		all, size := files(t, cfg.Trace.Directory)
		if size < most/2 || len(all) < 3 {
			t.Errorf("%d bytes in %d files", size, len(all))
		}
		replayOf(t, bytes.Join(all[:len(all)-1], nil))
		if testhelp.Metric(t, w.server.Metrics(), "isobar_trace_failures_total") != 0 {
			t.Error("files were given up")
		}
	})
}

// fillingFile is a file that the disk has no more room for from a moment on:
// what is written then goes to a device that is always full.
type fillingFile struct {
	*os.File

	full *atomic.Bool
}

func (f fillingFile) Write(b []byte) (int, error) {
	if !f.full.Load() {
		return f.File.Write(b)
	}
	device, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = device.Close() }()
	return device.Write(b)
}

// TestTraceOnAFullDisk: the trace stops and says so, and nothing else changes.
func TestTraceOnAFullDisk(t *testing.T) {
	for _, tc := range []struct {
		name, told string
		most       int64
		broken     func(t *testing.T, full *atomic.Bool, dir string)
	}{
		{"full", "no space left on device", 1 << 30, func(_ *testing.T, full *atomic.Bool, _ string) { full.Store(true) }},
		{"gone", "no such file", 1 << 30, func(t *testing.T, _ *atomic.Bool, dir string) {
			t.Helper()
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"too small", "does not fit into its size", 6000, func(*testing.T, *atomic.Bool, string) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kept := store.NewMemory()
				defer func() { _ = kept.Close() }()
				var full atomic.Bool
				cfg := traced(t, 10*time.Minute, tc.most)
				opts := server.Options{Store: kept, Log: slog.New(slog.DiscardHandler), CreateTrace: func(path string) (io.WriteCloser, error) {
					f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
					return fillingFile{f, &full}, err
				}}
				runWith(t, cfg, opts, func(w *world) {
					w.start(everywhere(300)...)
					w.settle(20 * time.Second)
					tc.broken(t, &full, cfg.Trace.Directory)
					before := w.server.Plan().Version
					after := w.settle(5 * time.Minute).Version
					if after < before+55 {
						t.Errorf("plan %d after %d", after, before)
					}
					var s admin.Status
					w.read("127.0.0.1", "/v1/status", &s)
					if told := strings.Join(admin.AttentionTexts(s.Attention), "\n"); s.OK || !strings.Contains(told, "the rolling trace has stopped: ") || !strings.Contains(told, tc.told) {
						t.Errorf("told: %s", told)
					}
					attends(t, s, admin.TraceStopped)
					if testhelp.Metric(t, w.server.Metrics(), "isobar_trace_recording") != 0 || testhelp.Metric(t, w.server.Metrics(), "isobar_trace_failures_total") < 1 {
						t.Error("no metric tells of it")
					}
				})
			})
		})
	}
}

// TestTraceNowhere: a directory that can't be made keeps no server from serving.
func TestTraceNowhere(t *testing.T) {
	cfg := traced(t, 10*time.Minute, 1<<30)
	if err := os.WriteFile(filepath.Dir(cfg.Trace.Directory), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(300)...)
		w.settle(20 * time.Second)
		var s admin.Status
		w.read("127.0.0.1", "/v1/status", &s)
		if told := strings.Join(admin.AttentionTexts(s.Attention), "\n"); w.server.Plan() == nil || !strings.Contains(told, "not a directory") {
			t.Errorf("told: %s", told)
		}
	})
}
