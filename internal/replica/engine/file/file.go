// Package file is the engine for replicas on one machine: tests, the demo, a host
// with several processes. Leadership is a lock on a file, which the kernel takes
// back when the process ends, however it ends; a process that hangs keeps it. The
// claim is a file beside it.
package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// ErrNetworkFileSystem reports a directory whose locks may not exclude.
var ErrNetworkFileSystem = errors.New("a network file system")

// Engine implements [engine.Engine] on a directory.
type Engine struct {
	dir, group string
	self       group.Identity
	name       []byte // self, encoded

	mu   sync.Mutex
	lock *os.File // held; nil while this replica does not lead

	last lastRead
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the engine of one replica. The directory is made if it is missing.
// Directories on network file systems are refused.
func Open(dir, groupName string, self group.Identity) (*Engine, error) {
	if err := checkGroup(groupName); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("replicas.election.file: %w: give it a directory that the user of this process may write to", err)
	}
	if kind := networkFileSystem(dir); kind != "" {
		return nil, fmt.Errorf("replicas.election.file: %s is on %w (%s), where locks may not exclude: "+
			"use a local directory, or etcd for replicas on several machines", dir, ErrNetworkFileSystem, kind)
	}
	name, err := engine.EncodeIdentity(self)
	if err != nil {
		return nil, err
	}
	return &Engine{dir: dir, group: groupName, self: self, name: name}, nil
}

// checkGroup allows only characters that file names may have on every system.
func checkGroup(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || len(name) > 100 || strings.Trim(name, letters) != "" || name[0] == '.' {
		return fmt.Errorf("replicas.group: %q: use at most 100 letters, digits, - _ and ., and no . at the beginning", name)
	}
	return nil
}

func (e *Engine) path(kind string) string { return filepath.Join(e.dir, e.group+"."+kind) }

// Changed implements [engine.Engine]: a lock does not signal that it is free.
func (e *Engine) Changed() <-chan struct{} { return nil }

// Close gives leadership up, if this replica has it.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last.mu.Lock()
	defer e.last.mu.Unlock()
	e.last.set(nil, nil, engine.Written{})
	return e.release()
}

// Do implements [engine.Engine].
func (e *Engine) Do(ctx context.Context, r group.Request) (group.Standing, error) {
	if err := ctx.Err(); err != nil {
		return group.Standing{}, fmt.Errorf("lock file: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.run(r)
	if err != nil {
		return group.Standing{}, fmt.Errorf("lock file %s: %s: %w", e.path("lock"), r.Op, err)
	}
	s, err := e.standing()
	if err != nil {
		return group.Standing{}, fmt.Errorf("lock file %s: %w", e.path("lock"), err)
	}
	return s, nil
}

func (e *Engine) run(r group.Request) error {
	if e.lock != nil && !e.inPlace(e.lock) { // the file was removed: others lock a new one
		if err := e.release(); err != nil {
			return err
		}
	}
	switch r.Op {
	case group.OpAcquire:
		return e.acquire()
	case group.OpClaim:
		return e.claim(r)
	case group.OpRelease:
		return e.release()
	case group.OpRead, group.OpRenew:
	}
	return nil
}

// acquire locks the file, if no replica has. A replica that can't read the claim, as one of an
// earlier version may not, leaves leadership to the others.
func (e *Engine) acquire() error {
	if e.lock != nil {
		return nil
	}
	if _, err := e.readClaim(); err != nil {
		return err
	}
	f, err := os.OpenFile(e.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		return errors.Join(unlessHeld(err), f.Close())
	}
	if !e.inPlace(f) { // it was replaced meanwhile; the next try finds the new one
		return f.Close()
	}
	// The name is a hint for others; only the lock counts.
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(e.name, 0)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	e.lock = f
	return nil
}

func (e *Engine) release() error {
	if e.lock == nil {
		return nil
	}
	f := e.lock
	e.lock = nil
	return f.Close()
}

// inPlace reports whether the open file is the one that others find.
func (e *Engine) inPlace(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(e.path("lock"))
	return err == nil && os.SameFile(open, there)
}

// claim writes the claim, if this replica leads and the one before is as it says.
func (e *Engine) claim(r group.Request) error {
	if e.lock == nil {
		return nil
	}
	have, err := e.readClaim()
	if err != nil || have != r.Previous {
		return err
	}
	data, err := r.Claim.Encode()
	if err != nil {
		return err
	}
	return replace(e.path("claim"), data)
}

// replace writes a file so that a crash leaves it whole: the one before or the new.
func replace(path string, data []byte) error {
	next := path + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the operator's own directory
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (e *Engine) readClaim() (group.Claim, error) {
	data, err := readBounded(e.path("claim"), group.MaxClaimBytes)
	if err != nil {
		return group.Claim{}, err
	}
	c, err := group.DecodeClaim(data)
	if err != nil {
		return group.Claim{}, fmt.Errorf("%s: %w", e.path("claim"), err)
	}
	return c, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's own directory
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	return data, errors.Join(err, f.Close())
}

// standing reads the leader and the claim.
func (e *Engine) standing() (group.Standing, error) {
	c, err := e.readClaim()
	if err != nil {
		return group.Standing{}, err
	}
	if e.lock != nil {
		return group.Standing{Holder: e.self, Claim: c}, nil
	}
	holder, err := e.holder()
	return group.Standing{Holder: holder, Claim: c}, err
}

// holder reads which other process has the lock.
func (e *Engine) holder() (group.Identity, error) {
	f, err := os.Open(e.path("lock"))
	if errors.Is(err, os.ErrNotExist) {
		return group.Identity{}, nil
	}
	if err != nil {
		return group.Identity{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if flock(f, syscall.LOCK_SH) == nil {
		return group.Identity{}, nil // no replica leads; closing the file returns this lock
	}
	data, err := io.ReadAll(io.LimitReader(f, 2048))
	if err != nil {
		return group.Identity{}, err
	}
	holder, err := engine.DecodeIdentity(bytes.TrimRight(data, "\x00"))
	if err != nil || holder.Name == "" {
		return group.Identity{Name: "unknown"}, nil // it is just being written
	}
	return holder, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func unlessHeld(err error) error {
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	return err
}
