package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Options of [Open].
type Options struct {
	Logger     *slog.Logger          // nil = slog.Default()
	Registerer prometheus.Registerer // nil = no metrics
}

// Suffixes of the files of a key.
const (
	currentSuffix  = ".state"
	previousSuffix = ".state.prev"
	tempSuffix     = ".state.tmp"
)

// Files is a [Store] in a directory: the current and the previous version of
// each key, a file each. A version is complete on disk before it takes the
// name of the current one, so a crash leaves the last version or the one
// before; a file that is damaged later falls back to the one before.
type Files struct {
	dir     string
	self    os.FileInfo // of the directory that was locked
	log     *slog.Logger
	lock    *dirLock
	watches watchers
	metrics metrics

	mu     sync.Mutex // guards the files of all keys
	closed bool
	told   map[string]uint64 // recoveries that were logged: key to revision
	seen   map[string]bool   // keys that were read or written
}

var _ Store = (*Files)(nil)

// Open makes the directory if need be, locks it against other processes
// (ErrLocked) and clears what a crash left half written.
func Open(dir string, o Options) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	self, err := os.Stat(dir)
	if err != nil {
		return nil, errors.Join(unusable(err), lock.Close())
	}
	f := &Files{dir: dir, self: self, log: o.Logger, lock: lock, told: map[string]uint64{}, seen: map[string]bool{}, metrics: newMetrics(o.Registerer)}
	if f.log == nil {
		f.log = slog.Default()
	}
	if err := f.sweep(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// sweep ends what a crash left half done. A version that is complete on disk,
// when the one before has given up its name already, takes that name: the one
// before may be damaged by now. Any other temporary file was never the answer to
// anything.
func (f *Files) sweep() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return unusable(err)
	}
	for _, e := range entries {
		key, isTemp := strings.CutSuffix(e.Name(), tempSuffix)
		if !isTemp || checkKey(key) != nil {
			continue
		}
		temp, name := f.path(key, tempSuffix), f.path(key, currentSuffix)
		_, bad := examineFile(temp)
		if _, taken := os.Lstat(name); bad == nil && errors.Is(taken, fs.ErrNotExist) {
			err = errors.Join(os.Rename(temp, name), syncDir(f.dir))
		} else {
			err = os.Remove(temp)
		}
		if err != nil {
			f.log.Warn("could not remove a partly written file", "error", err) // as on a disk that is read-only
		}
	}
	return nil
}

// Close unlocks the directory and ends all watches.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.watches.closeAll()
	f.metrics.unregister()
	return f.lock.Close() // which gives up the lock
}

// Get implements [Store].
func (f *Files) Get(ctx context.Context, key string) (Value, error) {
	if err := ready(ctx, key); err != nil {
		return Value{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v, _, err := f.read(key, readFile)
	return v, err
}

// CompareAndSwap implements [Store].
func (f *Files) CompareAndSwap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error) {
	return f.CompareAndSwapNotify(ctx, key, revision, data, func() {})
}

// CompareAndSwapNotify implements [Store].
func (f *Files) CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error) {
	if err := ready(ctx, key); err != nil {
		return 0, err
	}
	if err := checkSize(key, data); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.inPlace(); err != nil {
		return 0, err
	}
	have, from, err := f.read(key, examineFile)
	if err != nil && from != nowhere {
		return 0, err
	}
	if from == nowhere && revision > 0 && f.seen[key] {
		return 0, fmt.Errorf("%w: the files of %s were removed from %s: put them back; a restart without them starts with empty state", ErrGone, key, f.dir)
	}
	if have.Revision != revision {
		return 0, stale(key, have.Revision, revision)
	}
	next := Value{Data: data, Revision: revision + 1}
	if from == previous {
		next.Revision++ // the lost version had that number
	}
	err = f.write(key, next, from == current, written)
	if err == nil && from == nowhere {
		// A first version has none before it to fall back to but itself.
		err = writeDurably(f.path(key, previousSuffix), next, func() {})
	}
	if err != nil {
		f.metrics.failures.Inc()
		return 0, fmt.Errorf("saving state %s: %w", key, err)
	}
	f.seen[key] = true
	f.watches.notify(key, next)
	return next.Revision, nil
}

// inPlace returns ErrGone where another directory has taken the name of the one that
// this process has locked, or none has it: what is written there would be lost, or
// belong to another process. f.mu is held.
func (f *Files) inPlace() error {
	switch now, err := os.Stat(f.dir); {
	case f.closed:
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s with the state files was removed: put them back; a restart without them starts with empty state", ErrGone, f.dir)
	case err == nil && !os.SameFile(now, f.self):
		return fmt.Errorf("%w: another directory took the place of %s: put back the one that this process has locked, or restart to use the new one", ErrGone, f.dir)
	}
	return nil
}

// Watch implements [Store].
func (f *Files) Watch(ctx context.Context, key string) <-chan Value { return f.watches.open(ctx, key) }

func (f *Files) path(key, suffix string) string { return filepath.Join(f.dir, key+suffix) }

// write makes v the current version of a key; keep says that the version that
// is current now is good and becomes the previous one. written is called before the
// first sync. f.mu is held.
func (f *Files) write(key string, v Value, keep bool, written func()) error {
	temp := f.path(key, tempSuffix)
	if err := writeDurably(temp, v, written); err != nil {
		return errors.Join(err, removeIfThere(temp))
	}
	if keep {
		if err := os.Rename(f.path(key, currentSuffix), f.path(key, previousSuffix)); err != nil {
			return errors.Join(err, removeIfThere(temp))
		}
	}
	// A crash here finds no current version: see sweep.
	if err := os.Rename(temp, f.path(key, currentSuffix)); err != nil {
		return err
	}
	return syncDir(f.dir)
}

func writeDurably(path string, v Value, written func()) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the path is made of a checked key
	if err != nil {
		return err
	}
	for _, part := range [][]byte{encodeHead(v), v.Data} {
		if _, err := file.Write(part); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	written()
	if err := file.Sync(); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator's own directory
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
