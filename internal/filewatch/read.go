package filewatch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// ErrTooLarge says that a file is longer than its reader accepts.
var ErrTooLarge = errors.New("file too large")

// patience is how long what is no regular file, such as a pipe, may take.
const patience = 10 * time.Second

// Read reads a file of at most so many bytes. A longer one is refused with
// [ErrTooLarge]. It comes back whatever stands at the path: a pipe is read until
// it ends, for 10 seconds at most, and one that nobody writes to is empty.
func Read(path string, most int64) ([]byte, error) { return ReadWithin(path, most, patience) }

// ReadWithin is [Read] with a limit of its own for what is no regular file.
func ReadWithin(path string, most int64, wait time.Duration) (data []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		// What knows no deadlines, such as a directory, does not block.
		if err := file.SetReadDeadline(time.Now().Add(wait)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
			return nil, err
		}
	}
	if data, err = io.ReadAll(io.LimitReader(file, most+1)); err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s: %w: at most %d bytes are read", path, ErrTooLarge, most)
	}
	return data, nil
}
