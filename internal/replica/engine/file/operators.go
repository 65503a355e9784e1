package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// maxOperatorBytes bounds the file of operators' writes.
const maxOperatorBytes = 256 << 20

// operatorFormat is the version of written that this program writes and reads.
const operatorFormat = 1

// written is the file of operators' writes.
type written struct {
	Format   int                        `json:"format"`
	Sequence uint64                     `json:"sequence"`
	Entries  map[string]json.RawMessage `json:"entries"`
}

var _ engine.Operators = (*Engine)(nil)

// ReadOperators implements [engine.Operators].
func (e *Engine) ReadOperators(ctx context.Context) (engine.Written, error) {
	if err := ctx.Err(); err != nil {
		return engine.Written{}, err
	}
	path := e.path("operators")
	data, err := readBounded(path, maxOperatorBytes)
	if err != nil {
		return engine.Written{}, err
	}
	out := engine.Written{Entries: map[string][]byte{}}
	if len(data) == 0 {
		return out, nil
	}
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return engine.Written{}, fmt.Errorf("%s: %w", path, err)
	}
	if w.Format != operatorFormat {
		return engine.Written{}, fmt.Errorf("%s has format %d, this program reads %d: %w", path, w.Format, operatorFormat, group.ErrNewerFormat)
	}
	out.Sequence = w.Sequence
	for key, data := range w.Entries {
		out.Entries[key] = data
	}
	return out, nil
}

// lastWrite is the sequence of the file that was read last. The leader asks for it every second, and
// the file may hold thousands of services.
type lastWrite struct {
	mu       sync.Mutex
	of       os.FileInfo
	sequence uint64
}

// LastWrite implements [engine.Operators]. It reads the file again once it is another one: writes
// replace it.
func (e *Engine) LastWrite(ctx context.Context) (uint64, error) {
	e.last.mu.Lock()
	defer e.last.mu.Unlock()
	info, err := os.Stat(e.path("operators"))
	if err == nil && e.last.of != nil && os.SameFile(info, e.last.of) && info.ModTime().Equal(e.last.of.ModTime()) && info.Size() == e.last.of.Size() {
		return e.last.sequence, ctx.Err()
	}
	w, failed := e.ReadOperators(ctx)
	if err == nil && failed == nil {
		e.last.of, e.last.sequence = info, w.Sequence
	}
	return w.Sequence, failed
}

// WriteOperators implements [engine.Operators]. Data of changes is JSON.
func (e *Engine) WriteOperators(ctx context.Context, claim group.Claim, previous, next uint64, changes []engine.Change) error {
	if err := engine.CheckChanges(previous, next, changes); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	unlock, err := e.mayWrite(claim)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := e.ReadOperators(ctx)
	if err != nil {
		return err
	}
	if now.Sequence != previous {
		return fmt.Errorf("%w: the last one has number %d, not %d", engine.ErrStale, now.Sequence, previous)
	}
	engine.Apply(now.Entries, changes)
	file := written{Format: operatorFormat, Sequence: next, Entries: make(map[string]json.RawMessage, len(now.Entries))}
	for key, data := range now.Entries {
		file.Entries[key] = data
	}
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	return replace(e.path("operators"), data)
}

// mayWrite returns an error unless this replica leads with the claim, or, for the zero claim, no
// replica leads until unlock.
func (e *Engine) mayWrite(claim group.Claim) (unlock func(), err error) {
	leads := e.lock != nil && e.inPlace(e.lock)
	if claim.IsZero() {
		if leads {
			return nil, engine.ErrLed
		}
		return e.excludeLeaders()
	}
	if !leads {
		return nil, engine.ErrNotLeading
	}
	if have, err := e.readClaim(); err != nil {
		return nil, err
	} else if have != claim {
		return nil, engine.ErrNotLeading
	}
	return func() {}, nil
}

// excludeLeaders keeps every replica from leading until unlock, if none leads.
func (e *Engine) excludeLeaders() (unlock func(), err error) {
	f, err := os.OpenFile(e.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX)
	if err != nil && unlessHeld(err) == nil || err == nil && !e.inPlace(f) {
		err = engine.ErrLed
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // the kernel takes the lock back in any case
}
