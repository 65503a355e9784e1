package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
)

// WatchOptions of [WatchFile]. Zero values take the defaults.
type WatchOptions struct {
	// Current is the content that is in force already: only another one is
	// handed on.
	Current  []byte
	Quiet    time.Duration // how long nothing must change before the file is read; default 100 ms
	Patience time.Duration // how long a file that keeps changing is waited for; default 1 s
	Poll     time.Duration // how often the file is read without notice; default 30 s
	MaxBytes int64         // a longer file is refused; default 16 MiB

	Logger     *slog.Logger          // nil = slog.Default()
	Registerer prometheus.Registerer // nil = no metrics
}

func (o WatchOptions) withDefaults() WatchOptions {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&o.Quiet, 100*time.Millisecond)
	set(&o.Patience, time.Second)
	set(&o.Poll, 30*time.Second)
	if o.MaxBytes <= 0 {
		o.MaxBytes = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// ErrTooLarge says that a watched file exceeds WatchOptions.MaxBytes.
var ErrTooLarge = errors.New("file too large")

// WatchFile hands each new content of a file to onChange until ctx ends. What
// onChange refuses with an error, and a file that can't be read, is logged and
// counted, and the content before stays in force; it is tried again at each
// poll, as the reason may lie elsewhere.
//
// The file's directory is watched, not the file: editors replace files, and
// Kubernetes swaps a symlink beside it. Polling covers what notice does not:
// network file systems, and links into other directories.
func WatchFile(ctx context.Context, path string, o WatchOptions, onChange func(data []byte) error) {
	o = o.withDefaults()
	f := newFollower(path, o, onChange)
	dir := filepath.Dir(path)
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		o.Logger.Warn("no notice of file changes; polling only", "path", path, "every", o.Poll, "error", err)
		f.follow(ctx, nil, nil, func() {})
		return
	}
	defer func() {
		if err := notify.Close(); err != nil {
			o.Logger.Warn("closing file watch", "path", path, "error", err)
		}
	}()
	// Adding a directory that is watched already does nothing; one that was
	// deleted and made again has to be added anew.
	watch := func() {
		if err := notify.Add(dir); err != nil {
			o.Logger.Debug("no notice of file changes; polling only", "path", path, "every", o.Poll, "error", err)
		}
	}
	f.follow(ctx, notify.Events, notify.Errors, watch)
}

// follower is one watched file. It belongs to the goroutine of follow.
type follower struct {
	path     string
	opts     WatchOptions
	onChange func([]byte) error
	metrics  watchMetrics

	good    [sha256.Size]byte // of the content in force
	refused string            // the error that was logged last; empty when all is well
}

func newFollower(path string, o WatchOptions, onChange func([]byte) error) *follower {
	return &follower{
		path: path, opts: o, onChange: onChange,
		metrics: newWatchMetrics(o.Registerer), good: sha256.Sum256(o.Current),
	}
}

// follow checks the file after events and at each poll. Events that come in
// quick succession count as one: a file is written in steps.
func (f *follower) follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, watch func()) {
	poll := time.NewTicker(f.opts.Poll)
	defer poll.Stop()
	due := time.NewTimer(f.opts.Quiet)
	defer due.Stop()
	pendingSince := time.Now()
	pending := true // the file may have changed since it was read
	watch()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
				continue
			}
			now := time.Now()
			if !pending {
				pending, pendingSince = true, now
			}
			due.Reset(max(0, min(f.opts.Quiet, pendingSince.Add(f.opts.Patience).Sub(now))))
		case err, open := <-errs:
			if !open {
				errs = nil
				continue
			}
			f.opts.Logger.Warn("file watch", "path", f.path, "error", err) // the next poll makes up for what was missed
		case <-due.C:
			pending = false
			f.check()
		case <-poll.C:
			watch()
			f.check()
		}
	}
}

// check reads the file and hands it on if it is new.
func (f *follower) check() {
	data, err := readBounded(f.path, f.opts.MaxBytes)
	if err == nil {
		sum := sha256.Sum256(data)
		if sum == f.good {
			if f.refused != "" { // a bad content was taken back
				f.opts.Logger.Info("configuration file is as it was before the error", "path", f.path)
			}
			f.accepted()
			return
		}
		if err = f.onChange(data); err == nil {
			f.good = sum
			f.metrics.reloads.WithLabelValues("ok").Inc()
			f.opts.Logger.Info("configuration file reloaded", "path", f.path)
			f.accepted()
			return
		}
	}
	f.metrics.good.Set(0)
	if err.Error() == f.refused {
		return // told before
	}
	f.refused = err.Error()
	f.metrics.reloads.WithLabelValues("refused").Inc()
	f.opts.Logger.Error("configuration file refused; the content before stays in force", "path", f.path, "error", err)
}

func (f *follower) accepted() {
	f.metrics.good.Set(1)
	f.refused = ""
}

func readBounded(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s: %w: at most %d bytes are read", path, ErrTooLarge, most)
	}
	return data, nil
}

type watchMetrics struct {
	reloads *prometheus.CounterVec
	good    prometheus.Gauge
}

func newWatchMetrics(r prometheus.Registerer) watchMetrics {
	m := watchMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_source_file_reloads_total", Help: "New contents of the configuration file, by result: ok or refused.",
		}, []string{"result"}),
		good: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_source_file_good", Help: "1 while the configuration file is what is in force, 0 while it is refused.",
		}),
	}
	for _, result := range []string{"ok", "refused"} {
		m.reloads.WithLabelValues(result) // a rate needs a series that begins at 0
	}
	m.good.Set(1)
	if r != nil {
		r.MustRegister(m.reloads, m.good)
	}
	return m
}
