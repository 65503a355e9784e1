package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// encode gives the bytes of a file.
func encode(v Value) []byte {
	out := make([]byte, headerSize+len(v.Data))
	copy(out, magic)
	binary.BigEndian.PutUint32(out[8:], formatVersion)
	binary.BigEndian.PutUint32(out[12:], crc32.Checksum(out[:12], castagnoli))
	binary.BigEndian.PutUint64(out[16:], v.Revision)
	binary.BigEndian.PutUint64(out[24:], uint64(len(v.Data)))
	copy(out[headerSize:], v.Data)
	sum := checksum(out)
	copy(out[sumOffset:], sum[:])
	return out
}

func checksum(file []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(file[:sumOffset])
	h.Write(file[headerSize:])
	return [sha256.Size]byte(h.Sum(nil))
}

// decode is the inverse of encode. Its errors are errDamaged or ErrNewerFormat.
// The data shares memory with file.
func decode(file []byte) (Value, error) {
	if len(file) < prefixSize || string(file[:len(magic)]) != magic {
		return Value{}, fmt.Errorf("%w: %d bytes that do not begin as a state file", errDamaged, len(file))
	}
	if crc32.Checksum(file[:12], castagnoli) != binary.BigEndian.Uint32(file[12:]) {
		return Value{}, fmt.Errorf("%w: the header's checksum does not fit", errDamaged)
	}
	if version := binary.BigEndian.Uint32(file[8:]); version > formatVersion {
		return Value{}, fmt.Errorf("%w: format %d, this one reads up to %d", ErrNewerFormat, version, formatVersion)
	}
	if len(file) < headerSize {
		return Value{}, fmt.Errorf("%w: cut off within the header", errDamaged)
	}
	if length := binary.BigEndian.Uint64(file[24:]); length != uint64(len(file)-headerSize) { //nolint:gosec // the file is longer than its header
		return Value{}, fmt.Errorf("%w: %d bytes of data, want %d", errDamaged, len(file)-headerSize, length)
	}
	if sum := checksum(file); !bytes.Equal(sum[:], file[sumOffset:headerSize]) {
		return Value{}, fmt.Errorf("%w: the checksum does not fit", errDamaged)
	}
	v := Value{Data: file[headerSize:], Revision: binary.BigEndian.Uint64(file[16:])}
	if v.Revision == 0 || v.Revision > maxRevision {
		return Value{}, fmt.Errorf("%w: revision %d", errDamaged, v.Revision)
	}
	return v, nil
}
