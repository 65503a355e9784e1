package replay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Files of a ring are called by the moment at which they begin, in UTC, so that
// their names sort by time. Other files in the directory are left alone.
const (
	ringPrefix = "isobar-"
	ringSuffix = ".trace"
	ringTime   = "20060102T150405.000Z"
)

// ErrSize says that a single file takes more than all of them may.
var ErrSize = errors.New("the trace does not fit into its size, however many old files are removed")

// ring is a directory of traces that takes at most so many bytes: the oldest files are removed
// for the newest one.
type ring struct {
	dir  string
	max  int64
	open func(path string) (io.WriteCloser, error)

	mu    sync.Mutex
	files []ringFile // oldest first
	bytes int64      // of all of them
}

type ringFile struct {
	name  string
	ended time.Time // zero while it is written
	bytes int64
}

// openRing reads what is in the directory, and makes it if it is not there.
func openRing(dir string, most int64, open func(string) (io.WriteCloser, error)) (*ring, error) {
	if open == nil {
		open = func(path string) (io.WriteCloser, error) {
			return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the operator names it
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	r := &ring{dir: dir, max: most, open: open}
	for _, e := range entries {
		stamp, mine := strings.CutSuffix(e.Name(), ringSuffix)
		if _, err := time.Parse(ringPrefix+ringTime, stamp); !mine || err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // it went away, or is none of ours
		}
		r.files = append(r.files, ringFile{name: e.Name(), ended: info.ModTime(), bytes: info.Size()})
		r.bytes += info.Size()
	}
	slices.SortFunc(r.files, func(a, b ringFile) int { return strings.Compare(a.name, b.name) })
	return r, nil
}

// create begins a file. Those that ended before a moment go.
func (r *ring) create(now, before time.Time) (*ringWriter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.files) > 0 && r.files[0].ended.Before(before) && !r.files[0].ended.IsZero() {
		if err := r.removeOldest(); err != nil {
			return nil, err
		}
	}
	name := ringPrefix + now.UTC().Format(ringTime) + ringSuffix
	out, err := r.open(filepath.Join(r.dir, name))
	if err != nil {
		return nil, err
	}
	r.files = append(r.files, ringFile{name: name})
	return &ringWriter{ring: r, name: name, out: out}, nil
}

// removeOldest removes the oldest file.
func (r *ring) removeOldest() error {
	x := r.files[0]
	if err := os.Remove(filepath.Join(r.dir, x.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.files, r.bytes = r.files[1:], r.bytes-x.bytes
	return nil
}

// reserve frees so many bytes and reserves them for a file.
func (r *ring) reserve(name string, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.bytes+n > r.max {
		if len(r.files) == 0 || r.files[0].ended.IsZero() {
			return fmt.Errorf("%w: %d bytes", ErrSize, r.max)
		}
		if err := r.removeOldest(); err != nil {
			return err
		}
	}
	if i := r.find(name); i >= 0 {
		r.files[i].bytes += n
		r.bytes += n
	}
	return nil
}

func (r *ring) find(name string) int {
	return slices.IndexFunc(r.files, func(f ringFile) bool { return f.name == name })
}

// size is what all files take, in bytes.
func (r *ring) size() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// ringWriter writes one file of a ring.
type ringWriter struct {
	ring *ring
	name string
	out  io.WriteCloser
}

// Write implements io.Writer.
func (w *ringWriter) Write(b []byte) (int, error) {
	if err := w.ring.reserve(w.name, int64(len(b))); err != nil {
		return 0, err
	}
	return w.out.Write(b)
}

// Close implements io.Closer.
func (w *ringWriter) Close() error {
	w.ring.mu.Lock()
	if i := w.ring.find(w.name); i >= 0 {
		w.ring.files[i].ended = time.Now()
	}
	w.ring.mu.Unlock()
	return w.out.Close()
}

// discard closes a file in which there is nothing, and removes it.
func (w *ringWriter) discard() error {
	err := w.Close()
	w.ring.mu.Lock()
	defer w.ring.mu.Unlock()
	w.ring.files = slices.DeleteFunc(w.ring.files, func(f ringFile) bool { return f.name == w.name })
	return errors.Join(err, os.Remove(filepath.Join(w.ring.dir, w.name)))
}
