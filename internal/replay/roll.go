package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RollOptions say where a rolling trace is kept, and how much of it.
type RollOptions struct {
	Directory string        // made where it is not there
	Keep      time.Duration // files that ended longer ago are removed
	MaxBytes  int64         // of all files together; the oldest are removed
	Version   string        // of the program
	// Open creates a file; nil = in the file system.
	Open       func(path string) (io.WriteCloser, error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A new file is begun after a 24th of the time that is kept, and where one has
// an eighth of the size that is kept. Each begins with a copy of the state, so
// none is shorter than leastRoll unless it has to be.
const (
	rollParts      = 24
	rollSizes      = 8
	leastRoll      = time.Minute
	mostRoll       = time.Hour
	rollAgain      = time.Minute      // after a file that was given up because it was not written in time
	rollStopWithin = 10 * time.Second // for the loop to say that it has ended
)

// Listen has a loop tell a recorder everything from now on. It calls begun in
// between two turns, when the recorder has begun.
type Listen func(ctx context.Context, r *Recorder, begun func()) error

// Roller records all the time, into files that are replayed one by one; old ones are removed. An
// error of a file is reported, and ends the recording; the recorded loop does not notice.
type Roller struct {
	opts    RollOptions
	ring    *ring
	trouble atomic.Pointer[string]
	failed  prometheus.Counter
	running atomic.Bool
}

// NewRoller makes a roller.
func NewRoller(o RollOptions) *Roller {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Roller{opts: o, failed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_trace_failures_total", Help: "Files of the rolling trace that Isobar abandoned: the disk is full, broken, or too slow.",
	})}
	ring, err := openRing(o.Directory, o.MaxBytes, o.Open)
	if err != nil {
		r.fail(err)
	}
	r.ring = ring
	if o.Registerer != nil {
		o.Registerer.MustRegister(r.failed,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "isobar_trace_recording", Help: "1 while the rolling trace is written.",
			}, func() float64 {
				if r.running.Load() {
					return 1
				}
				return 0
			}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "isobar_trace_bytes", Help: "Size of all files of the rolling trace.",
			}, func() float64 {
				if r.ring == nil {
					return 0
				}
				return float64(r.ring.size())
			}))
	}
	return r
}

// Trouble tells why nothing is recorded; empty while all is well. A nil Roller
// has none.
func (r *Roller) Trouble() string {
	if r == nil {
		return ""
	}
	if why := r.trouble.Load(); why != nil {
		return *why
	}
	return ""
}

func (r *Roller) fail(err error) {
	why := err.Error()
	r.trouble.Store(&why)
	r.failed.Inc()
	r.opts.Logger.Error("the rolling trace has stopped; Isobar continues to serve", "directory", r.opts.Directory, "error", err)
}

// Run records until ctx ends or files fail. A file that is not written in time, or whose buffer
// in the loop is full, is given up, and another one begun later.
func (r *Roller) Run(ctx context.Context, listen Listen) {
	defer r.running.Store(false)
	for r.ring != nil {
		err := r.roll(ctx, listen)
		r.running.Store(false)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.fail(err)
		if !errors.Is(err, ErrSlow) && !errors.Is(err, errListen) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rollAgain):
		}
	}
}

// errListen says that a loop does not listen.
var errListen = errors.New("no recording can begin")

// rolled is one file and who writes it.
type rolled struct {
	recorder *Recorder
	began    time.Time
	full     chan struct{} // capacity 1
	done     chan error    // capacity 1
}

// roll records file after file; nil where the loop has ended.
func (r *Roller) roll(ctx context.Context, listen Listen) error {
	var last *rolled
	span := min(max(r.opts.Keep/rollParts, leastRoll), mostRoll)
	for {
		next, err := r.begin(ctx, listen, last)
		if err == nil {
			r.trouble.Store(nil)
			r.running.Store(true)
		}
		if last != nil {
			last.recorder.End(EndFinished) // where next could not begin
			if ended := <-last.done; ended != nil {
				r.fail(ended)
			}
		}
		if err != nil {
			return err
		}
		timer := time.NewTimer(span)
		select {
		case err := <-next.done:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return next.stopped()
		case <-next.full:
			timer.Stop()
		case <-timer.C:
		}
		last = next
	}
}

// begin begins a file; the last one, if any, ends between the same two turns.
func (r *Roller) begin(ctx context.Context, listen Listen, last *rolled) (*rolled, error) {
	now := time.Now()
	out, err := r.ring.create(now, now.Add(-r.opts.Keep))
	if err != nil {
		return nil, err
	}
	x := &rolled{recorder: NewRecorder(r.opts.Version, 0), began: now, full: make(chan struct{}, 1), done: make(chan error, 1)}
	err = listen(ctx, x.recorder, func() {
		if last != nil {
			last.recorder.End(EndFinished)
		}
	})
	if err != nil {
		x.recorder.End(EndStopped) // where the loop began to tell it nevertheless
		return nil, errors.Join(fmt.Errorf("%w: %w", errListen, err), out.discard())
	}
	go func() {
		err := x.recorder.Run(context.WithoutCancel(ctx), out, func(c Counts) {
			if c.Bytes >= r.opts.MaxBytes/rollSizes && time.Since(x.began) >= leastRoll {
				select {
				case x.full <- struct{}{}:
				default:
				}
			}
		})
		x.done <- errors.Join(err, out.Close())
	}()
	return x, nil
}

// stopped waits until the loop has told its end.
func (x *rolled) stopped() error {
	select {
	case err := <-x.done:
		return err
	case <-time.After(rollStopWithin):
		x.recorder.End(EndStopped)
		return <-x.done
	}
}
