package discovery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/filewatch"
)

// WatchOptions of [WatchFile]. Zero values take the defaults.
type WatchOptions struct {
	// Current is the content that is in force already: only another one is
	// handed on.
	Current []byte
	// InForce reports whether a content is in force, for an owner who also takes contents that
	// it has read by itself; nil = it is the last one that was handed on.
	InForce  func(data []byte) bool
	Poll     time.Duration // how often the file is read without notice; default 30 s
	Stable   time.Duration // how long a new content must stay the same before it counts; default 1.5 s
	MaxBytes int64         // a longer file is refused; default 32 MiB

	// Refused is told why what the file holds is not in force, and nil when it is
	// again; nil = nobody asks.
	Refused func(why error)

	Trigger *filewatch.Trigger // asks for a reading without notice; nil = nobody does

	Logger     *slog.Logger          // nil = slog.Default()
	Registerer prometheus.Registerer // nil = no metrics
}

const (
	// defaultStable covers what writes a file in parts; a part of it may look whole.
	defaultStable = 1500 * time.Millisecond
	// maxChanging is how long a file that keeps changing is waited for before it is
	// told.
	maxChanging = 30 * time.Second
)

// errChanging says that a file does not come to rest.
var errChanging = errors.New("the file keeps changing")

func (o WatchOptions) withDefaults() WatchOptions {
	if o.Stable <= 0 {
		o.Stable = defaultStable
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 32 << 20
	}
	if o.Refused == nil {
		o.Refused = func(error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// WatchFile hands each new content of a file to onChange until ctx ends, once it has
// stayed the same for some time: a part of a file that is being written may look whole. What
// onChange refuses with an error, and a file that can't be read, is logged and
// counted, and the content before stays in force; it is tried again at each
// poll, as the reason may lie elsewhere.
func WatchFile(ctx context.Context, path string, o WatchOptions, onChange func(data []byte) error) {
	f := newFollower(path, o, onChange)
	filewatch.Watch(ctx, []string{path}, f.timing(), f.check)
}

// follower is one watched file. It belongs to the goroutine of WatchFile.
type follower struct {
	path     string
	opts     WatchOptions
	onChange func([]byte) error
	metrics  watchMetrics

	good     [sha256.Size]byte // of the content in force
	settling filewatch.Settling
	refused  string // the error that was logged last; empty when all is well
}

func newFollower(path string, o WatchOptions, onChange func([]byte) error) *follower {
	o = o.withDefaults()
	good := sha256.Sum256(o.Current)
	o.Current = nil // it may be large
	return &follower{path: path, opts: o, onChange: onChange, metrics: newWatchMetrics(o.Registerer), good: good}
}

func (f *follower) timing() filewatch.Options {
	return filewatch.Options{Poll: f.opts.Poll, Trigger: f.opts.Trigger, Logger: f.opts.Logger}
}

// check reads the file and hands it on if it is new and at rest. It returns when to
// look again at what is not at rest yet, 0 for never.
func (f *follower) check() (again time.Duration) {
	data, err := filewatch.Read(f.path, f.opts.MaxBytes)
	sum := sha256.Sum256(data)
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error())) // a file that is replaced may be away for a moment
	}
	if err == nil && f.inForce(data, sum) {
		f.settling.Done()
		if sum != f.good {
			f.taken(sum)
		} else if f.refused != "" { // a bad content was taken back
			f.opts.Logger.Info("configuration file is as it was before the error", "path", f.path)
		}
		f.accepted()
		return 0
	}
	wait, changing := f.settling.Rest(f.state(sum), time.Now(), f.opts.Stable)
	switch {
	case wait > 0 && changing >= maxChanging:
		f.refuse(fmt.Errorf("%s: %w: Isobar reads it once it has not changed for %v", f.path, errChanging, f.opts.Stable))
		return wait
	case wait > 0:
		return wait
	}
	if err == nil {
		err = f.onChange(data)
	}
	if err != nil {
		f.refuse(err)
		return 0
	}
	f.settling.Done()
	f.taken(sum)
	f.accepted()
	return 0
}

func (f *follower) inForce(data []byte, sum [sha256.Size]byte) bool {
	if f.opts.InForce == nil {
		return sum == f.good
	}
	return f.opts.InForce(data)
}

// taken records that another content is in force.
func (f *follower) taken(sum [sha256.Size]byte) {
	f.good = sum
	f.metrics.reloads.WithLabelValues("ok").Inc()
	f.opts.Logger.Info("configuration file reloaded", "path", f.path)
}

// state is a sum of a content and of when it was written: looks that are far apart may
// meet the same part of a file that is written again and again.
func (f *follower) state(content [sha256.Size]byte) [sha256.Size]byte {
	written := "unknown"
	if info, err := os.Stat(f.path); err == nil {
		written = info.ModTime().String()
	}
	return sha256.Sum256(append(content[:], written...))
}

// refuse tells why the content before stays in force.
func (f *follower) refuse(err error) {
	f.metrics.good.Set(0)
	if err.Error() == f.refused {
		return // told before
	}
	f.refused = err.Error()
	f.opts.Refused(err)
	f.metrics.reloads.WithLabelValues("refused").Inc()
	f.opts.Logger.Error("configuration file refused; the content before stays in force", "path", f.path, "error", err)
}

func (f *follower) accepted() {
	f.metrics.good.Set(1)
	f.opts.Refused(nil)
	f.refused = ""
}

type watchMetrics struct {
	reloads *prometheus.CounterVec
	good    prometheus.Gauge
}

func newWatchMetrics(r prometheus.Registerer) watchMetrics {
	m := watchMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_discovery_file_reloads_total", Help: "Reloads of a changed configuration file, by result: ok or refused.",
		}, []string{"result"}),
		good: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_file_good", Help: "1 while the configuration file on disk is in force, 0 while it is refused or held.",
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
