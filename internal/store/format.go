package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// A file is a header and the data. All numbers are big-endian.
//
//	 0  8  magic "ISOBARST"
//	 8  4  format version
//	12  4  CRC-32 (Castagnoli) of the 12 bytes before
//	16  8  revision, >= 1
//	24  8  length of the data in bytes
//	32 32  SHA-256 of the 32 bytes before and the data
//	64  -  data
//
// The first 16 bytes stay as they are in every later version, so that a damaged
// version number can be told from a newer one.
const (
	magic         = "ISOBARST"
	formatVersion = 1
	prefixSize    = 16
	sumOffset     = 32
	headerSize    = sumOffset + sha256.Size
	maxRevision   = 1 << 62 // more than can ever be counted to; leaves room to add
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("damaged file")

// encodeHead gives what stands before the data in a file.
func encodeHead(v Value) []byte {
	out := make([]byte, headerSize)
	copy(out, magic)
	binary.BigEndian.PutUint32(out[8:], formatVersion)
	binary.BigEndian.PutUint32(out[12:], crc32.Checksum(out[:12], castagnoli))
	binary.BigEndian.PutUint64(out[16:], v.Revision)
	binary.BigEndian.PutUint64(out[24:], uint64(len(v.Data)))
	h := newChecksum(out)
	h.Write(v.Data)
	h.Sum(out[:sumOffset])
	return out
}

// newChecksum begins the checksum of a file; its data is still to come.
func newChecksum(head []byte) hash.Hash {
	h := sha256.New()
	h.Write(head[:sumOffset])
	return h
}

// decode is the inverse of encoding. Its errors are errDamaged or
// ErrNewerFormat. The data shares memory with file.
func decode(file []byte) (Value, error) {
	head := file[:min(len(file), headerSize)]
	if err := checkHead(head, int64(len(file))); err != nil {
		return Value{}, err
	}
	h := newChecksum(head)
	h.Write(file[headerSize:])
	revision, err := revisionOf(head, h)
	if err != nil {
		return Value{}, err
	}
	return Value{Data: file[headerSize:], Revision: revision}, nil
}

// examine is decode without keeping the data of a file, which has size bytes.
func examine(file io.Reader, size int64) (revision uint64, err error) {
	head := make([]byte, min(size, headerSize))
	if _, err := io.ReadFull(file, head); err != nil {
		return 0, err
	}
	if err := checkHead(head, size); err != nil {
		return 0, err
	}
	h := newChecksum(head)
	if _, err := io.Copy(h, io.LimitReader(file, size-headerSize)); err != nil {
		return 0, err
	}
	return revisionOf(head, h)
}

// checkHead checks the beginning of a file of size bytes, as far as that tells.
func checkHead(head []byte, size int64) error {
	if len(head) < prefixSize || string(head[:len(magic)]) != magic {
		return fmt.Errorf("%w: %d bytes that do not begin as a state file", errDamaged, size)
	}
	if crc32.Checksum(head[:12], castagnoli) != binary.BigEndian.Uint32(head[12:]) {
		return fmt.Errorf("%w: the header's checksum does not fit", errDamaged)
	}
	if version := binary.BigEndian.Uint32(head[8:]); version > formatVersion {
		return fmt.Errorf("%w: format %d, this one reads up to %d; start that version again, or move the file away to go on with the one before it",
			ErrNewerFormat, version, formatVersion)
	}
	if len(head) < headerSize {
		return fmt.Errorf("%w: cut off within the header", errDamaged)
	}
	if length := binary.BigEndian.Uint64(head[24:]); length != uint64(size-headerSize) { //nolint:gosec // the file is longer than its header
		return fmt.Errorf("%w: %d bytes of data, want %d", errDamaged, size-headerSize, length)
	}
	return nil
}

// revisionOf gives the revision of a file with a good head and the checksum h.
func revisionOf(head []byte, h hash.Hash) (uint64, error) {
	if !bytes.Equal(h.Sum(nil), head[sumOffset:]) {
		return 0, fmt.Errorf("%w: the checksum does not fit", errDamaged)
	}
	revision := binary.BigEndian.Uint64(head[16:])
	if revision == 0 || revision > maxRevision {
		return 0, fmt.Errorf("%w: revision %d", errDamaged, revision)
	}
	return revision, nil
}
