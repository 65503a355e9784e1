package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
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
	w, err := e.readOperators()
	if err != nil {
		return engine.Written{}, err
	}
	return engine.Written{Sequence: w.Sequence, Entries: maps.Clone(w.Entries)}, nil
}

// LastWrite implements [engine.Operators].
func (e *Engine) LastWrite(ctx context.Context) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w, err := e.readOperators()
	return w.Sequence, err
}

// lastRead is the file of operators' writes that was read last. The leader asks for its sequence
// every second and reads it before each write, and it may hold thousands of services.
type lastRead struct {
	mu      sync.Mutex
	file    *os.File       // open, so that no other file gets its inode
	info    os.FileInfo    // of file
	written engine.Written // nothing changes its entries
}

// readOperators reads the file if it is another one than the last time: writes replace it. The
// result may not be changed.
func (e *Engine) readOperators() (engine.Written, error) {
	e.last.mu.Lock()
	defer e.last.mu.Unlock()
	if e.last.isAt(e.path("operators")) {
		return e.last.written, nil
	}
	f, err := os.Open(e.path("operators"))
	if errors.Is(err, os.ErrNotExist) {
		return engine.Written{Entries: map[string][]byte{}}, nil
	}
	if err != nil {
		return engine.Written{}, err
	}
	info, err := f.Stat() // before it is read: a change in place is seen the next time
	if err != nil {
		return engine.Written{}, errors.Join(err, f.Close())
	}
	w, err := decodeOperators(f)
	if err != nil {
		return engine.Written{}, errors.Join(err, f.Close())
	}
	e.last.set(f, info, w)
	return w, nil
}

// isAt reports whether the file at path is still the one that was read.
func (l *lastRead) isAt(path string) bool {
	if l.file == nil {
		return false
	}
	has, err := os.Stat(path)
	return err == nil && os.SameFile(l.info, has) && has.ModTime().Equal(l.info.ModTime()) && has.Size() == l.info.Size()
}

// encodeOperators encodes written. The entries are valid JSON, and encoding/json would read each of
// them again.
func encodeOperators(sequence uint64, entries map[string][]byte) ([]byte, error) {
	size := 0
	for key, data := range entries {
		size += len(key) + len(data) + 8
	}
	out := make([]byte, 0, size+100)
	out = fmt.Appendf(out, `{"format":%d,"sequence":%d,"entries":{`, operatorFormat, sequence)
	for i, key := range slices.Sorted(maps.Keys(entries)) {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), entries[key]...)
	}
	return append(out, "}}"...), nil
}

// remember keeps the entries of the file that was just written. If that fails, they are read again.
func (e *Engine) remember(w engine.Written) {
	e.last.mu.Lock()
	defer e.last.mu.Unlock()
	f, err := os.Open(e.path("operators"))
	if err != nil {
		return
	}
	if info, err := f.Stat(); err == nil {
		e.last.set(f, info, w)
	} else {
		_ = f.Close() // it was read only
	}
}

// set closes the file before.
func (l *lastRead) set(f *os.File, info os.FileInfo, w engine.Written) {
	if l.file != nil {
		_ = l.file.Close() // it was read only
	}
	l.file, l.info, l.written = f, info, w
}

func decodeOperators(f *os.File) (engine.Written, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxOperatorBytes+1))
	if err != nil {
		return engine.Written{}, err
	}
	out := engine.Written{Entries: map[string][]byte{}}
	if len(data) == 0 {
		return out, nil
	}
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return engine.Written{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if w.Format != operatorFormat {
		return engine.Written{}, fmt.Errorf("%s has format %d, this program reads %d: %w", f.Name(), w.Format, operatorFormat, group.ErrNewerFormat)
	}
	out.Sequence = w.Sequence
	for key, data := range w.Entries {
		out.Entries[key] = data
	}
	return out, nil
}

// WriteOperators implements [engine.Operators]. Data of changes is JSON.
func (e *Engine) WriteOperators(ctx context.Context, claim group.Claim, previous, next uint64, changes []engine.Change) error {
	if err := engine.CheckChanges(previous, next, changes); err != nil {
		return err
	}
	for i := range changes {
		if c := &changes[i]; c.Data != nil && !json.Valid(c.Data) {
			return fmt.Errorf("the data of %s is no JSON", c.Key)
		}
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
	data, err := encodeOperators(next, now.Entries)
	if err != nil {
		return err
	}
	if err := replace(e.path("operators"), data); err != nil {
		return err
	}
	e.remember(engine.Written{Sequence: next, Entries: now.Entries})
	return nil
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
