// Package filewatch tells when files may have changed. It imports nothing of
// this module.
//
// It is directories that are watched, not files: editors replace files, and
// Kubernetes swaps a link beside them. Polling covers what notice does not:
// network file systems, and links into other directories.
package filewatch

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
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
