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

// lockDir takes the directory for this process. The lock goes with the
// process, however it ends; the file stays, with the process id as a hint.
func lockDir(dir string) (*os.File, error) {
	file, err := openLock(dir)
	if err != nil {
		return nil, unusable(err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("state directory %s is %w%s: stop that one, or give this one a state_dir of its own",
			dir, ErrLocked, holder(file)), file.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking state directory %s: %w", dir, err), file.Close())
	}
	// The process id is a hint for people; a full or read-only disk must not keep
	// the last good state from being served.
	if file.Truncate(0) == nil {
		_ = writePID(file)
	}
	return file, nil
}

// openLock opens the file that carries the lock; on a disk that can't be
// written, as it is, or the directory in its place.
func openLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's own directory
	if err == nil || (!errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT)) {
		return file, err
	}
	if file, again := os.Open(path); again == nil { //nolint:gosec // the same
		return file, nil
	}
	if file, again := os.Open(dir); again == nil { //nolint:gosec // the same
		return file, nil
	}
	return nil, err
}

func writePID(file *os.File) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder says which process has the lock, as far as its file tells.
func holder(file *os.File) string {
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
