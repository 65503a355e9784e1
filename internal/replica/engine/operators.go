package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// Operators keeps operators' writes: one entry for each service of the admin API and for each
// mark, such as a drain. All methods may be called at once from any goroutine.
type Operators interface {
	// ReadOperators returns all entries as they are at one moment.
	ReadOperators(ctx context.Context) (Written, error)
	// LastWrite returns the number of the last write; 0 = there was none. It costs one
	// small read.
	LastWrite(ctx context.Context) (uint64, error)
	// WriteOperators makes all changes, or none. It is refused with ErrNotLeading unless the
	// claim is the newest and this replica leads, and with ErrStale if previous is not the number
	// of the last write. next is the number of this one, above previous. After another error it
	// is unknown whether the write happened. The zero claim writes while no replica leads, and is
	// refused with ErrLed if one does.
	WriteOperators(ctx context.Context, claim group.Claim, previous, next uint64, changes []Change) error
}

// Inspector is an engine that can warn operators of resources that will run out.
type Inspector interface {
	// Warnings returns one sentence for each; nil = nothing.
	Warnings(ctx context.Context) []string
}

// Written is the state that operators wrote.
type Written struct {
	// Sequence is the number of the last write; 0 = there was none.
	Sequence uint64
	Entries  map[string][]byte
}

// Change sets an entry, or removes it where Data is nil.
type Change struct {
	Key  string `json:"key"`
	Data []byte `json:"data,omitempty"`
}

// Errors of Operators.
var (
	ErrStale      = errors.New("another write came first")
	ErrNotLeading = errors.New("this replica does not lead the group any more")
	ErrLed        = errors.New("a replica leads the group")
	// ErrTooLarge refuses an entry beyond MaxEntryBytes, or more than MaxEntries.
	ErrTooLarge = errors.New("too large for the election engine")
)

const (
	// RequestPatience bounds one request to an engine. A read or a write for operators may take many.
	RequestPatience = 3 * time.Second
	// MaxEntryBytes bounds one entry. etcd takes requests of at most 1.5 MiB.
	MaxEntryBytes = 512 << 10
	// MaxEntries bounds all entries together.
	MaxEntries = 100_000
	// MaxKeyBytes bounds a key.
	MaxKeyBytes = 1024
)

// CheckChanges returns an error for invalid changes before they are sent.
func CheckChanges(previous, next uint64, changes []Change) error {
	if next <= previous || next > group.MaxVersion {
		return fmt.Errorf("write %d can't follow write %d", next, previous)
	}
	if len(changes) > MaxEntries {
		return fmt.Errorf("%w: %d changes at once, at most %d are taken", ErrTooLarge, len(changes), MaxEntries)
	}
	for i := range changes {
		c := &changes[i]
		if c.Key == "" || len(c.Key) > MaxKeyBytes || strings.Contains(c.Key, "\x00") {
			return fmt.Errorf("key %q: want 1 to %d bytes", c.Key, MaxKeyBytes)
		}
		if len(c.Data) > MaxEntryBytes {
			return fmt.Errorf("%w: %s has %d KiB, at most %d are kept; write large services into the configuration file",
				ErrTooLarge, c.Key, len(c.Data)>>10, MaxEntryBytes>>10)
		}
	}
	return nil
}

// Apply makes the changes on entries.
func Apply(entries map[string][]byte, changes []Change) {
	for i := range changes {
		if changes[i].Data == nil {
			delete(entries, changes[i].Key)
		} else {
			entries[changes[i].Key] = changes[i].Data
		}
	}
}
