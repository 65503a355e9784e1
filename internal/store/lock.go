package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const lockName = "LOCK"

// dirLock is what keeps other processes out of a directory: locks on the
// directory itself and on a file in it. On a full disk the file can't be made, and
// some file systems lock no directories; two processes always meet at one of them.
// The locks go with the process, however it ends; the file stays, with the process
// id as a hint.
type dirLock struct {
	held []*os.File
}

// Close gives up the locks.
func (l *dirLock) Close() error {
	var err error
	for _, f := range l.held {
		err = errors.Join(err, f.Close())
	}
	return err
}

// take locks a file, or returns EWOULDBLOCK where another process has it.
func (l *dirLock) take(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.held = append(l.held, file)
	return nil
}

// lockDir takes the directory for this process.
func lockDir(dir string) (*dirLock, error) {
	l := &dirLock{}
	self, err := os.Open(dir) //nolint:gosec // the operator's own directory
	if err != nil {
		return nil, unusable(err)
	}
	onDir := l.take(self)
	if errors.Is(onDir, syscall.EWOULDBLOCK) {
		return nil, inUse(dir)
	}
	path := filepath.Join(dir, lockName)
	file, err := openLock(path)
	switch {
	case err == nil:
	case onDir == nil && cannotWrite(err):
		return l, nil // the directory is locked; the last good state is served
	default:
		return nil, errors.Join(unusable(err), l.Close())
	}
	if err := l.take(file); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = inUse(dir)
		} else {
			err = fmt.Errorf("locking state directory %s: %w", dir, err)
		}
		return nil, errors.Join(err, l.Close())
	}
	// The process id is a hint for people; a full or read-only disk must not keep
	// the last good state from being served.
	if file.Truncate(0) == nil {
		_ = writePID(file)
	}
	return l, nil
}

// openLock opens the file that carries a lock; on a disk that can't be written,
// as it is.
func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's own directory
	if cannotWrite(err) {
		if asItIs, again := os.Open(path); again == nil { //nolint:gosec // the same
			return asItIs, nil
		}
	}
	return file, err
}

// cannotWrite reports whether the disk is full, read-only or failing.
func cannotWrite(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO)
}

// inUse says that another process has the directory.
func inUse(dir string) error {
	return fmt.Errorf("state directory %s is %w%s: stop that one, or give this one a state_dir of its own", dir, ErrLocked, holder(dir))
}

func writePID(file *os.File) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder says which process has the lock, as far as its file tells.
func holder(dir string) string {
	file, err := os.Open(filepath.Join(dir, lockName)) //nolint:gosec // the operator's own directory
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // it was only read
	text := make([]byte, 20)
	n, _ := file.ReadAt(text, 0) // a short file is the usual case
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}

// unusable tells that there is no directory to keep state in.
func unusable(err error) error {
	return fmt.Errorf("state directory: %w: give state_dir a directory that the user of this process may write to", err)
}
