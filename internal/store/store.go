// Package store keeps what must survive a restart under a few keys: get,
// compare-and-swap, watch. [Files] keeps each key in a checksummed file of a
// directory that one process owns; [Memory] keeps them for as long as it lives.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/isobar-xds/isobar"
)

// Value is what stands under a key. Revisions begin at 1 and grow with every
// change of the key. It is an alias of a plain struct so that consumers can
// state the interface that they need without importing this package.
type Value = struct {
	Data     []byte
	Revision uint64
}

// Store is durable state. All methods may be called at once from any goroutine.
type Store interface {
	// Get reads a key; isobar.ErrNotFound when nothing stands there. The
	// caller owns the data.
	Get(ctx context.Context, key string) (Value, error)
	// CompareAndSwap writes data if the key is still at revision (0 = there is
	// nothing yet) and returns the new revision; else isobar.ErrStale, or ErrGone
	// where what stood there was removed behind the store's back. When it
	// returns without error the data is durable. It keeps no reference to data.
	CompareAndSwap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error)
	// CompareAndSwapNotify is CompareAndSwap that calls written once the file system has
	// accepted all of data, before it waits for the disk: the write can still fail, but
	// not for lack of space, nor because the key is at another revision. It calls
	// written at most once, in its own goroutine, and not at all where the write failed
	// before. written must not use the store.
	CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error)
	// Watch tells changes of a key that come after the call. A slow reader
	// misses values in between, never the last one. The channel is closed when
	// ctx ends or the store is closed.
	Watch(ctx context.Context, key string) <-chan Value
}

// Errors of this package, beside isobar.ErrNotFound and isobar.ErrStale.
var (
	// ErrKey marks a key of the wrong form.
	ErrKey = errors.New("bad key")
	// ErrCorrupt says that neither the current nor the previous version of a
	// key can be read.
	ErrCorrupt = errors.New("corrupt state")
	// ErrNewerFormat says that a newer Isobar wrote the file.
	ErrNewerFormat = errors.New("written by a newer version")
	// ErrLocked says that another process uses the directory.
	ErrLocked = errors.New("in use by another process")
	// ErrTooLarge says that a value exceeds MaxValueBytes.
	ErrTooLarge = errors.New("value too large")
	// ErrGone says that the files of a key were there, and are not any more. To read
	// again and repeat the change is no remedy, as it is for isobar.ErrStale.
	ErrGone = errors.New("state is gone")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
)

// MaxValueBytes bounds a value, in bytes.
const MaxValueBytes = 256 << 20

var keyPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func checkKey(key string) error {
	if keyPattern.MatchString(key) {
		return nil
	}
	return fmt.Errorf("%w %q: want 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit", ErrKey, key)
}

func checkSize(key string, data []byte) error {
	if len(data) > MaxValueBytes {
		return fmt.Errorf("%w: %s has %d bytes, at most %d are kept", ErrTooLarge, key, len(data), MaxValueBytes)
	}
	return nil
}

func stale(key string, have, want uint64) error {
	return fmt.Errorf("%w: %s is at revision %d, not %d", isobar.ErrStale, key, have, want)
}

func notFound(key string) error { return fmt.Errorf("state %s: %w", key, isobar.ErrNotFound) }

// Memory is a [Store] that forgets everything with the process.
type Memory struct {
	mu      sync.Mutex
	values  map[string]Value
	watches watchers
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{values: map[string]Value{}} }

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) (Value, error) {
	if err := ready(ctx, key); err != nil {
		return Value{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if !ok {
		return Value{}, notFound(key)
	}
	return Value{Data: bytes.Clone(v.Data), Revision: v.Revision}, nil
}

// CompareAndSwap implements [Store].
func (m *Memory) CompareAndSwap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error) {
	return m.CompareAndSwapNotify(ctx, key, revision, data, func() {})
}

// CompareAndSwapNotify implements [Store].
func (m *Memory) CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error) {
	if err := ready(ctx, key); err != nil {
		return 0, err
	}
	if err := checkSize(key, data); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.values[key].Revision; have != revision {
		return 0, stale(key, have, revision)
	}
	v := Value{Data: bytes.Clone(data), Revision: revision + 1}
	m.values[key] = v
	m.watches.notify(key, v)
	written()
	return v.Revision, nil
}

// Watch implements [Store].
func (m *Memory) Watch(ctx context.Context, key string) <-chan Value { return m.watches.open(ctx, key) }

// Close ends all watches.
func (m *Memory) Close() error {
	m.watches.closeAll()
	return nil
}

func ready(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("state %s: %w", key, err)
	}
	return checkKey(key)
}

// watchers are the open watches of a store, by key.
type watchers struct {
	mu     sync.Mutex
	byKey  map[string]map[chan Value]func() bool // to what releases the watch's context
	closed bool
}

// open adds a watch of key that ends with ctx.
func (w *watchers) open(ctx context.Context, key string) <-chan Value {
	ch := make(chan Value, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(ch)
		return ch
	}
	if w.byKey == nil {
		w.byKey = map[string]map[chan Value]func() bool{}
	}
	if w.byKey[key] == nil {
		w.byKey[key] = map[chan Value]func() bool{}
	}
	w.byKey[key][ch] = context.AfterFunc(ctx, func() { w.drop(key, ch) })
	return ch
}

func (w *watchers) drop(key string, ch chan Value) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.byKey[key][ch]; open {
		delete(w.byKey[key], ch)
		close(ch)
	}
}

// notify passes v to all watches of key. It replaces a value that was not received
// yet, so it never blocks.
func (w *watchers) notify(key string, v Value) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byKey[key] {
		select {
		case <-ch:
		default:
		}
		ch <- Value{Data: bytes.Clone(v.Data), Revision: v.Revision} // room was just made, and only tell sends
	}
}

// closeAll ends all watches and those to come.
func (w *watchers) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, watches := range w.byKey {
		for ch, release := range watches {
			release()
			close(ch)
		}
	}
	w.byKey = nil
}
