// Package archive keeps the changes of the plan of the last day, for operators who look
// back: each change once, appended to files of a directory, or in memory where there is
// none. Files are bounded in bytes and age; the index of them is in memory. A change is
// compressed in blocks of services, so that the history of one service is read without
// the others.
package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Bounds of an archive in files.
const (
	MaxAge     = 24 * time.Hour
	MaxBytes   = 256 << 20
	MaxChanges = 50_000 // in the index, some 400 bytes each

	// MemoryBytes bounds an archive without a directory.
	MemoryBytes = 16 << 20
)

// Options of [Open]. The zero value is useful.
type Options struct {
	MaxAge     time.Duration // older changes are removed; 0 = MaxAge
	MaxBytes   int64         // of all files; 0 = MaxBytes, or MemoryBytes without a directory
	MaxChanges int           // 0 = MaxChanges
	Logger     *slog.Logger  // nil = none
}

// Archive keeps changes. All methods may be called at once from any goroutine.
type Archive struct {
	dir  string // "" = in memory
	opts Options
	log  *slog.Logger

	writing sync.Mutex // one Append at a time

	mu       sync.RWMutex
	segments []*segment
	removed  int                  // entries that were removed since Open
	cache    map[string]*selected // marks of services that were asked for
}

// Open reads the index of what an earlier process wrote into a directory, and makes the
// directory if need be. Changes that are damaged, and those after them in the same file,
// are left out. With an empty directory the archive is in memory, and empty.
func Open(dir string, o Options) (*Archive, error) {
	o.MaxAge, o.MaxChanges = cmp.Or(o.MaxAge, MaxAge), cmp.Or(o.MaxChanges, MaxChanges)
	if o.MaxBytes <= 0 {
		o.MaxBytes = MaxBytes
		if dir == "" {
			o.MaxBytes = MemoryBytes
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Archive{dir: dir, opts: o, log: o.Logger, cache: map[string]*selected{}}
	if dir == "" {
		return a, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		s, err := openSegment(name)
		if err != nil {
			a.log.Error("skipped a history file that can't be read", "file", name, "error", err)
			continue
		}
		if len(s.entries) == 0 {
			_ = s.remove() // nothing of it can be shown; what can't be removed is found again
			continue
		}
		a.segments = append(a.segments, s)
	}
	a.inOrder()
	a.retire()
	return a, nil
}

// inOrder leaves out files whose versions do not go on from the file before, as after a
// restore of a backup: versions only grow.
func (a *Archive) inOrder() {
	last := uint64(0)
	a.segments = slices.DeleteFunc(a.segments, func(s *segment) bool {
		if s.entries[0].mark.Version <= last {
			a.log.Warn("skipped a history file that repeats versions", "file", s.name)
			return true
		}
		last = s.entries[len(s.entries)-1].mark.Version
		return false
	})
}

// ErrKnown is the error of a change whose version, or a newer one, is kept already.
var ErrKnown = errors.New("the history has this version, or a newer one")

// ErrRefused is the error of a change that can't be kept, whatever the state of the disk is.
var ErrRefused = errors.New("the history can't keep this change")

// Append adds a change. With an error it is not kept. A full disk first costs the oldest
// changes: the plan itself is saved on the same disk.
func (a *Archive) Append(c *plan.Change) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	if last, found := a.newest(); found && c.Version <= last.Version {
		return fmt.Errorf("archive: version %d after %d: %w", c.Version, last.Version, ErrKnown)
	}
	data, e, err := encode(c)
	if err != nil {
		return fmt.Errorf("archive: version %d: %w: %w", c.Version, ErrRefused, err)
	}
	if int64(len(data)) > a.segmentBytes() {
		return fmt.Errorf("archive: version %d has %d bytes, at most %d are kept: %w", c.Version, len(data), a.segmentBytes(), ErrRefused)
	}
	for {
		s, err := a.segmentFor(len(data), c.Made)
		if err == nil {
			err = s.write(data)
		}
		if err == nil {
			a.mu.Lock()
			s.add(e, data)
			a.mu.Unlock()
			a.retire()
			return nil
		}
		if !a.dropOldest() {
			return fmt.Errorf("archive: %w", err)
		}
	}
}

// segmentBytes bounds a file: all files are removed as a whole.
func (a *Archive) segmentBytes() int64 { return a.opts.MaxBytes / 8 }

// segmentFor returns the file that has space for so many bytes more.
func (a *Archive) segmentFor(n int, made time.Time) (*segment, error) {
	a.mu.RLock()
	var s *segment
	if len(a.segments) > 0 {
		s = a.segments[len(a.segments)-1]
	}
	a.mu.RUnlock()
	if s != nil && !s.broken && s.size+int64(n) <= a.segmentBytes() && s.age(made) < a.opts.MaxAge/24 {
		return s, nil
	}
	next, err := a.create()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.segments = append(a.segments, next)
	return next, nil
}

func (a *Archive) create() (*segment, error) {
	if a.dir == "" {
		return &segment{}, nil
	}
	number := uint64(0)
	names, err := filepath.Glob(filepath.Join(a.dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if len(names) > 0 {
		number = numberOf(names[len(names)-1]) + 1
	}
	return createSegment(filepath.Join(a.dir, fmt.Sprintf("%016x%s", number, suffix)))
}

// retire removes the oldest files while there is too much, or all of a file is too old.
func (a *Archive) retire() {
	for {
		a.mu.RLock()
		var bytes int64
		count := 0
		for _, s := range a.segments {
			bytes += s.size
			count += len(s.entries)
		}
		excess := len(a.segments) > 1 && (bytes > a.opts.MaxBytes || count > a.opts.MaxChanges || a.outdated(a.segments[0]))
		a.mu.RUnlock()
		if !excess || !a.dropOldest() {
			return
		}
	}
}

// outdated reports whether all changes of a file are too old, by the newest change.
func (a *Archive) outdated(s *segment) bool {
	last := a.segments[len(a.segments)-1]
	if len(s.entries) == 0 || len(last.entries) == 0 {
		return false
	}
	newest := last.entries[len(last.entries)-1].mark.Made
	return newest.Sub(s.entries[len(s.entries)-1].mark.Made) > a.opts.MaxAge
}

// dropOldest removes the oldest file; false where it is the only one.
func (a *Archive) dropOldest() bool {
	a.mu.Lock()
	if len(a.segments) < 2 {
		a.mu.Unlock()
		return false
	}
	s := a.segments[0]
	a.segments = slices.Delete(a.segments, 0, 1)
	a.removed += len(s.entries)
	a.mu.Unlock()
	if err := s.remove(); err != nil {
		a.log.Error("could not remove a history file", "file", s.name, "error", err)
	}
	return true
}

// Close closes the files. The archive is not used any more.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := make([]error, 0, len(a.segments))
	for _, s := range a.segments {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	a.segments = nil
	return errors.Join(errs...)
}

// Bytes is the size of all files.
func (a *Archive) Bytes() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var n int64
	for _, s := range a.segments {
		n += s.size
	}
	return n
}

func (a *Archive) newest() (Mark, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, s := range slices.Backward(a.segments) {
		if n := len(s.entries); n > 0 {
			return s.entries[n-1].mark, true
		}
	}
	return Mark{}, false
}

// errGone says that a file was removed while it was read.
var errGone = fmt.Errorf("the change was removed meanwhile: %w", isobar.ErrNotFound)

// gone tells a file that was removed from one that can't be read.
func gone(err error) error {
	if errors.Is(err, fs.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return errGone
	}
	return err
}
