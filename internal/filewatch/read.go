package filewatch

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrTooLarge says that a file is longer than its reader accepts.
var ErrTooLarge = errors.New("file too large")

// Read reads a file of at most so many bytes. A longer one is refused with
// [ErrTooLarge].
func Read(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s: %w: at most %d bytes are read", path, ErrTooLarge, most)
	}
	return data, nil
}
