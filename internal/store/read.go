package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// origin is where a value was found.
type origin uint8

const (
	nowhere origin = iota // neither file exists
	current
	previous
	unreadable
)

// read gives the newest good version of a key, read in one way or another. f.mu
// is held.
func (f *Files) read(key string, readFile func(path string) (Value, error)) (Value, origin, error) {
	if f.closed {
		return Value{}, unreadable, fmt.Errorf("state %s: %w", key, ErrClosed)
	}
	v, err := readFile(f.path(key, currentSuffix))
	if errors.Is(err, syscall.EIO) { // it may pass, and the version before lacks what was acknowledged last
		v, err = readFile(f.path(key, currentSuffix))
	}
	if err == nil {
		f.seen[key] = true
		return v, current, nil
	}
	// A newer version must not be overwritten; a file that can't be opened may
	// be fine, and what is wrong is for the operator to see. A disk that can't read
	// its sectors gives nothing more: the version before may lie on better ones.
	switch {
	case errors.Is(err, ErrNewerFormat):
		return Value{}, unreadable, fmt.Errorf("state %s: %w", key, err)
	case !errors.Is(err, fs.ErrNotExist) && !damaged(err):
		return Value{}, unreadable, fmt.Errorf("state %s: %w; make the file readable, or move it away to continue with the version before it", key, err)
	}
	before, errBefore := readFile(f.path(key, previousSuffix))
	switch {
	case errBefore == nil:
		f.seen[key] = true
		f.tellRecovery(key, before.Revision, err)
		return before, previous, nil
	case errors.Is(err, fs.ErrNotExist) && errors.Is(errBefore, fs.ErrNotExist):
		return Value{}, nowhere, notFound(key)
	case errors.Is(errBefore, fs.ErrNotExist) || damaged(errBefore):
		return Value{}, unreadable, fmt.Errorf("state %s: %w: %w; the version before: %w; move both files away to start without state",
			key, ErrCorrupt, err, errBefore)
	default:
		return Value{}, unreadable, fmt.Errorf("state %s: %w", key, errBefore)
	}
}

// damaged tells whether a file is there, and its content lost.
func damaged(err error) bool { return errors.Is(err, errDamaged) || errors.Is(err, syscall.EIO) }

// tellRecovery says once for each version that the one before is used.
func (f *Files) tellRecovery(key string, revision uint64, cause error) {
	if f.told[key] == revision {
		return
	}
	f.told[key] = revision
	f.metrics.recoveries.Inc()
	f.log.Error("a state file is missing or damaged; using its previous version", "key", key, "revision", revision, "error", cause)
}

func readFile(path string) (Value, error) {
	if _, err := sizeOf(path); err != nil {
		return Value{}, err
	}
	file, err := os.ReadFile(path) //nolint:gosec // the path is made of a checked key
	if err != nil {
		return Value{}, err
	}
	v, err := decode(file)
	if err != nil {
		return Value{}, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// examineFile is readFile without the data: a version that is to be replaced is
// checked, but needs no memory.
func examineFile(path string) (Value, error) {
	size, err := sizeOf(path)
	if err != nil {
		return Value{}, err
	}
	file, err := os.Open(path) //nolint:gosec // the path is made of a checked key
	if err != nil {
		return Value{}, err
	}
	defer func() { _ = file.Close() }() // it was only read
	revision, err := examine(file, size)
	if err != nil {
		return Value{}, fmt.Errorf("%s: %w", path, err)
	}
	return Value{Revision: revision}, nil
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() { // to read a pipe could take for ever
		return 0, fmt.Errorf("%s: %w: no regular file", path, errDamaged)
	}
	if info.Size() > headerSize+MaxValueBytes {
		return 0, fmt.Errorf("%s: %w: %d bytes", path, errDamaged, info.Size())
	}
	return info.Size(), nil
}
