package identity

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How files are watched.
const (
	quiet    = 100 * time.Millisecond // that nothing changes before they are read: a pair is written in steps
	patience = time.Second            // for files that keep changing
	poll     = 30 * time.Second       // without notice: network file systems, links into other directories
)

// watch calls check when a file may have changed, and now and then, until ctx
// ends. It is the directories that are watched: Kubernetes swaps a link beside
// the files, and others replace files.
func watch(ctx context.Context, paths []string, log *slog.Logger, check func()) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no notice of changed files; polling only", "files", paths, "every", poll, "error", err)
		follow(ctx, nil, nil, func() {}, check, log)
		return
	}
	defer func() {
		if err := notify.Close(); err != nil {
			log.Warn("closing a file watch", "files", paths, "error", err)
		}
	}()
	var dirs []string
	for _, path := range paths {
		if dir := filepath.Dir(path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	// A directory that was deleted and made again has to be added anew.
	add := func() {
		for _, dir := range dirs {
			if err := notify.Add(dir); err != nil {
				log.Debug("no notice of changed files; polling only", "directory", dir, "every", poll, "error", err)
			}
		}
	}
	follow(ctx, notify.Events, notify.Errors, add, check, log)
}

func follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, add, check func(), log *slog.Logger) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	due := time.NewTimer(quiet) // they may have changed since they were opened
	defer due.Stop()
	since, pending := time.Now(), true
	add()
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
				pending, since = true, now
			}
			due.Reset(max(0, min(quiet, since.Add(patience).Sub(now))))
		case err, open := <-errs:
			if !open {
				errs = nil
				continue
			}
			log.Warn("a file watch failed; the next poll makes up for it", "error", err)
		case <-due.C:
			pending = false
			check()
		case <-ticker.C:
			add()
			check()
		}
	}
}
