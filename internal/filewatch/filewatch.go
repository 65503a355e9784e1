// Package filewatch tells when files may have changed. It imports nothing of
// this module.
//
// It is directories that are watched, not files: editors replace files, and
// Kubernetes swaps a link beside them. Polling covers what notice does not:
// network file systems, and links into other directories.
package filewatch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options of [Watch]. Zero values take the defaults.
type Options struct {
	Quiet    time.Duration // how long nothing must change before files are read: they are written in steps; default 100 ms
	Patience time.Duration // how long files that keep changing are waited for; default 1 s
	Poll     time.Duration // how often files are read without notice; default 30 s
	Trigger  *Trigger      // asks for a reading without notice; nil = nobody does
	Logger   *slog.Logger  // nil = slog.Default()
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&o.Quiet, 100*time.Millisecond)
	set(&o.Patience, time.Second)
	set(&o.Poll, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Watch calls check soon after it begins, when one of the files may have
// changed, at each poll, and when the trigger fires, until ctx ends. All calls come from the caller's
// goroutine. Check returns after what time it is to be called again at the latest, 0 for
// when there is a reason; [Settling] gives that time for files that are being written.
func Watch(ctx context.Context, paths []string, o Options, check func() (again time.Duration)) {
	o = o.withDefaults()
	log := o.Logger.With("files", paths)
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("file change notifications are not available; polling only", "every", o.Poll, "error", err)
		Follow(ctx, Notices{}, o, check)
		return
	}
	defer func() {
		if err := notify.Close(); err != nil {
			log.Warn("could not close a file watch", "error", err)
		}
	}()
	var dirs []string
	for _, path := range paths {
		if dir := filepath.Dir(path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	o.Logger = log
	Follow(ctx, Notices{Events: notify.Events, Errors: notify.Errors, Renew: func() {
		for _, dir := range dirs {
			if err := notify.Add(dir); err != nil {
				log.Debug("file change notifications are not available; polling only", "directory", dir, "every", o.Poll, "error", err)
			}
		}
	}}, o, check)
}

// Notices of the operating system that something changed.
type Notices struct {
	Events <-chan fsnotify.Event
	Errors <-chan error
	// Renew asks for notices (again): a directory that was deleted and made again
	// sends none before. Nil asks for nothing.
	Renew func()
}

// Follow is [Watch] with notices from anywhere. Those in quick succession
// count as one.
func Follow(ctx context.Context, n Notices, o Options, check func() (again time.Duration)) {
	o = o.withDefaults()
	renew := n.Renew
	if renew == nil {
		renew = func() {}
	}
	poll := time.NewTicker(o.Poll)
	defer poll.Stop()
	due := time.NewTimer(o.Quiet) // files may have changed since their owner read them
	defer due.Stop()
	rings, leave := o.Trigger.hear()
	defer leave()
	since, pending := time.Now(), true
	look := func() {
		pending = false
		if again := check(); again > 0 {
			due.Reset(again)
		}
	}
	renew()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-n.Events:
			if !open {
				n.Events = nil
				continue
			}
			now := time.Now()
			if !pending {
				pending, since = true, now
			}
			due.Reset(max(0, min(o.Quiet, since.Add(o.Patience).Sub(now))))
		case err, open := <-n.Errors:
			if !open {
				n.Errors = nil
				continue
			}
			o.Logger.Warn("a file watch failed; the next poll makes up for it", "error", err)
		case <-due.C:
			look()
		case <-rings:
			renew()
			look()
		case <-poll.C:
			renew()
			look()
		}
	}
}

// ErrTooLarge says that a file is longer than its reader accepts.
var ErrTooLarge = errors.New("file too large")

// patience is how long what is no regular file, such as a pipe, may take.
const patience = 10 * time.Second

// Read reads a file of at most so many bytes. A longer one is refused with
// [ErrTooLarge]. It comes back whatever stands at the path: a pipe is read until
// it ends, for 10 seconds at most, and one that nobody writes to is empty.
func Read(path string, most int64) ([]byte, error) { return readWithin(path, most, patience) }

// readWithin is [Read] with a limit of its own for what is no regular file.
func readWithin(path string, most int64, wait time.Duration) (data []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		// What knows no deadlines, such as a directory, does not block.
		if err := file.SetReadDeadline(time.Now().Add(wait)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
			return nil, err
		}
	}
	if data, err = ReadAll(file, info.Size(), most+1); err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s: %w: at most %d bytes are read", path, ErrTooLarge, most)
	}
	return data, nil
}

// ReadAll reads at most so many bytes of a file that has size bytes, or had a moment ago. It
// allocates them at once: to grow step by step takes five times as much.
func ReadAll(file io.Reader, size, most int64) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, max(0, min(size, most))+bytes.MinRead)) // the rest is for the end of the file
	_, err := b.ReadFrom(io.LimitReader(file, most))
	return b.Bytes(), err
}

// Settling tells when a file that is written in parts is whole: once its content has not
// changed for some time. Notices do not tell that, as there are none on some file
// systems and the writer may pause. The zero value is ready.
type Settling struct {
	seen   [sha256.Size]byte // content at the last look
	since  time.Time         // when that was seen first
	moving time.Time         // when the first content was seen that did not stay; zero = it is at rest
}

// Rest records the sum of the content that a look at now found. It returns for how long that must
// stay the same before it counts, 0 = it counts, and since when the content has been changing.
func (s *Settling) Rest(sum [sha256.Size]byte, now time.Time, settle time.Duration) (wait, changing time.Duration) {
	if s.since.IsZero() || sum != s.seen {
		s.seen, s.since = sum, now
	}
	if s.moving.IsZero() {
		s.moving = now
	}
	wait = max(0, settle-now.Sub(s.since))
	changing = now.Sub(s.moving)
	if wait == 0 {
		s.moving = time.Time{}
	}
	return wait, changing
}

// Done records that the present content of the file is in force: the next change starts again.
func (s *Settling) Done() { *s = Settling{} }

// Trigger asks all who follow files with it to read them now. The zero value is
// ready; it is safe for concurrent use.
type Trigger struct {
	mu      sync.Mutex
	hearers map[chan struct{}]struct{}
}

// Fire asks. It does not wait; calls in quick succession count as one.
func (b *Trigger) Fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.hearers {
		select {
		case h <- struct{}{}:
		default:
		}
	}
}

// hear returns the calls from now on; a nil Trigger never fires.
func (b *Trigger) hear() (rings <-chan struct{}, leave func()) {
	if b == nil {
		return nil, func() {}
	}
	h := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hearers == nil {
		b.hearers = map[chan struct{}]struct{}{}
	}
	b.hearers[h] = struct{}{}
	return h, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.hearers, h)
	}
}
