package store

import (
	"hash/crc32"
	"io"
	"os"
)

// written tells a file that this process wrote from one that is damaged. A CRC-32 takes a small
// part of the time of the SHA-256 in the file, and misses accidental damage once in four
// billion times.
type written struct {
	revision uint64
	size     int64
	crc      uint32 // of the whole file
}

// writtenOf describes the file of a value.
func writtenOf(v Value, head []byte) written {
	return written{
		revision: v.Revision, size: int64(len(head) + len(v.Data)),
		crc: crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, v.Data),
	}
}

// isIn reports whether a file has exactly what was written. False is no verdict: the file may
// be damaged, not readable, or of another process.
func (w written) isIn(path string) bool {
	if size, err := sizeOf(path); err != nil || size != w.size {
		return false
	}
	file, err := os.Open(path) //nolint:gosec // the path is made of a checked key
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // it was only read
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, file)
	return err == nil && n == w.size && h.Sum32() == w.crc
}

// examiner returns how to examine the files of a key before a write. A save examines the
// version that it replaces: one that this process wrote itself is not hashed again. f.mu is
// held.
func (f *Files) examiner(key string) func(path string) (Value, error) {
	w, known := f.wrote[key]
	current := f.path(key, currentSuffix)
	return func(path string) (Value, error) {
		if known && path == current && w.isIn(path) {
			return Value{Revision: w.revision}, nil
		}
		return examineFile(path)
	}
}
