package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

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
	told   map[string]uint64  // recoveries that were logged: key to revision
	seen   map[string]bool    // keys that were read or written
	wrote  map[string]written // the versions that this process wrote last
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
	f := &Files{
		dir: dir, self: self, log: o.Logger, lock: lock, metrics: newMetrics(o.Registerer),
		told: map[string]uint64{}, seen: map[string]bool{}, wrote: map[string]written{},
	}
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
	have, from, err := f.read(key, f.examiner(key))
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
	head := encodeHead(next)
	err = f.write(key, next, head, from == current, written)
	if err == nil && from == nowhere {
		// A first version has none before it to fall back to but itself.
		err = writeDurably(f.path(key, previousSuffix), next, head, func() {})
	}
	if err != nil {
		f.metrics.failures.Inc()
		return 0, fmt.Errorf("saving state %s: %w", key, err)
	}
	f.seen[key], f.wrote[key] = true, writtenOf(next, head)
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

// write makes v, with its head, the current version of a key; keep says that the version that
// is current now is good and becomes the previous one. written is called before the
// first sync. f.mu is held.
func (f *Files) write(key string, v Value, head []byte, keep bool, written func()) error {
	temp := f.path(key, tempSuffix)
	if err := writeDurably(temp, v, head, written); err != nil {
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

func writeDurably(path string, v Value, head []byte, written func()) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the path is made of a checked key
	if err != nil {
		return err
	}
	for _, part := range [][]byte{head, v.Data} {
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

// origin is where a value was found.
type origin uint8

const (
	nowhere origin = iota // neither file exists
	current
	previous
	unreadable
)

// read returns the newest good version of a key, read in one way or another. f.mu
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

// damaged reports whether a file is there, and its content lost.
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

// A file is a header and the data. All numbers are big-endian.
//
//	 0  8  magic "ISOBARST"
//	 8  4  format version
//	12  4  CRC-32 (Castagnoli) of the 12 bytes before
//	16  8  revision, >= 1
//	24  8  length of the data in bytes
//	32 32  SHA-256 of the 32 bytes before and the data
//	64  -  data
//
// The first 16 bytes stay as they are in every later version, so that a damaged
// version number can be told from a newer one.
const (
	magic         = "ISOBARST"
	formatVersion = 1
	prefixSize    = 16
	sumOffset     = 32
	headerSize    = sumOffset + sha256.Size
	maxRevision   = 1 << 62 // more than can ever be counted to; leaves room to add
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("damaged file")

// encodeHead returns what stands before the data in a file.
func encodeHead(v Value) []byte {
	out := make([]byte, headerSize)
	copy(out, magic)
	binary.BigEndian.PutUint32(out[8:], formatVersion)
	binary.BigEndian.PutUint32(out[12:], crc32.Checksum(out[:12], castagnoli))
	binary.BigEndian.PutUint64(out[16:], v.Revision)
	binary.BigEndian.PutUint64(out[24:], uint64(len(v.Data)))
	h := newChecksum(out)
	h.Write(v.Data)
	h.Sum(out[:sumOffset])
	return out
}

// newChecksum begins the checksum of a file; its data is still to come.
func newChecksum(head []byte) hash.Hash {
	h := sha256.New()
	h.Write(head[:sumOffset])
	return h
}

// decode is the inverse of encoding. Its errors are errDamaged or
// ErrNewerFormat. The data shares memory with file.
func decode(file []byte) (Value, error) {
	head := file[:min(len(file), headerSize)]
	if err := checkHead(head, int64(len(file))); err != nil {
		return Value{}, err
	}
	h := newChecksum(head)
	h.Write(file[headerSize:])
	revision, err := revisionOf(head, h)
	if err != nil {
		return Value{}, err
	}
	return Value{Data: file[headerSize:], Revision: revision}, nil
}

// examine is decode without keeping the data of a file, which has size bytes.
func examine(file io.Reader, size int64) (revision uint64, err error) {
	head := make([]byte, min(size, headerSize))
	if _, err := io.ReadFull(file, head); err != nil {
		return 0, err
	}
	if err := checkHead(head, size); err != nil {
		return 0, err
	}
	h := newChecksum(head)
	if _, err := io.Copy(h, io.LimitReader(file, size-headerSize)); err != nil {
		return 0, err
	}
	return revisionOf(head, h)
}

// checkHead checks the beginning of a file of size bytes, as far as that tells.
func checkHead(head []byte, size int64) error {
	if len(head) < prefixSize || string(head[:len(magic)]) != magic {
		return fmt.Errorf("%w: %d bytes that do not begin as a state file", errDamaged, size)
	}
	if crc32.Checksum(head[:12], castagnoli) != binary.BigEndian.Uint32(head[12:]) {
		return fmt.Errorf("%w: the header's checksum does not fit", errDamaged)
	}
	if version := binary.BigEndian.Uint32(head[8:]); version > formatVersion {
		return fmt.Errorf("%w: format %d, this one reads up to %d; start that version again, or move the file away to use the previous one",
			ErrNewerFormat, version, formatVersion)
	}
	if len(head) < headerSize {
		return fmt.Errorf("%w: cut off within the header", errDamaged)
	}
	if length := binary.BigEndian.Uint64(head[24:]); length != uint64(size-headerSize) { //nolint:gosec // the file is longer than its header
		return fmt.Errorf("%w: %d bytes of data, want %d", errDamaged, size-headerSize, length)
	}
	return nil
}

// revisionOf returns the revision of a file with a good head and the checksum h.
func revisionOf(head []byte, h hash.Hash) (uint64, error) {
	if !bytes.Equal(h.Sum(nil), head[sumOffset:]) {
		return 0, fmt.Errorf("%w: the checksum does not fit", errDamaged)
	}
	revision := binary.BigEndian.Uint64(head[16:])
	if revision == 0 || revision > maxRevision {
		return 0, fmt.Errorf("%w: revision %d", errDamaged, revision)
	}
	return revision, nil
}
