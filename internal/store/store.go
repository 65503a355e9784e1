// Package store keeps what must survive a restart under a few keys: get,
// compare-and-swap, watch. [Files] keeps each key in a checksummed file of a
// directory that one process owns; [Memory] keeps them for as long as it lives.
package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"

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
	// nothing yet) and gives the new revision; else isobar.ErrStale, or ErrGone
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

var keyForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func checkKey(key string) error {
	if keyForm.MatchString(key) {
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
