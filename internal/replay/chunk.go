package replay

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The beginning of a segment: mark and version of the format.
const (
	mark    = "isobartr"
	version = 1
)

const (
	maxChunk   = 1 << 20 // bytes in a chunk, before compression
	chunkHead  = 12      // bytes: length when compressed, length, checksum
	flateExtra = 1 << 10 // what compression may add, far above what it does
)

// DefaultMaxRecord bounds a record, in bytes.
const DefaultMaxRecord = 512 << 20

// Errors of a Reader.
var (
	// ErrFormat says that a file is no trace, or of a newer format.
	ErrFormat = errors.New("not a trace that can be read")
	// ErrCut says that a trace ends in the middle: what came before is whole.
	ErrCut = errors.New("the trace is cut")
	// ErrDamaged says that bytes of a trace are not those that were written.
	ErrDamaged = errors.New("the trace is damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunker writes records as chunks.
type chunker struct {
	w       io.Writer
	raw     []byte
	packed  bytes.Buffer
	deflate *flate.Writer
	written int64
}

func newChunker(w io.Writer) (*chunker, error) {
	deflate, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	c := &chunker{w: w, deflate: deflate}
	return c, c.write(head())
}

// head is how a segment begins.
func head() []byte {
	return binary.BigEndian.AppendUint16([]byte(mark), version)
}

func (c *chunker) write(b []byte) error {
	n, err := c.w.Write(b)
	c.written += int64(n)
	return err
}

// record adds a record; full chunks are written.
func (c *chunker) record(kind byte, payload []byte) error {
	c.raw = append(c.raw, kind)
	c.raw = binary.AppendUvarint(c.raw, uint64(len(payload)))
	for len(c.raw)+len(payload) > maxChunk {
		fits := max(0, maxChunk-len(c.raw))
		c.raw = append(c.raw, payload[:fits]...)
		payload = payload[fits:]
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.raw = append(c.raw, payload...)
	return nil
}

// flush writes what there is as a chunk.
func (c *chunker) flush() error {
	for len(c.raw) > 0 {
		part := c.raw[:min(len(c.raw), maxChunk)]
		c.packed.Reset()
		c.packed.Write(make([]byte, chunkHead))
		c.deflate.Reset(&c.packed)
		if _, err := c.deflate.Write(part); err != nil {
			return err
		}
		if err := c.deflate.Close(); err != nil {
			return err
		}
		b := c.packed.Bytes()
		binary.BigEndian.PutUint32(b, uint32(len(b)-chunkHead)) //nolint:gosec // chunks are small
		binary.BigEndian.PutUint32(b[4:], uint32(len(part)))    //nolint:gosec // chunks are small
		binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[chunkHead:], castagnoli))
		if err := c.write(b); err != nil {
			return err
		}
		c.raw = append(c.raw[:0], c.raw[len(part):]...)
	}
	return nil
}

// inflater is what [flate.NewReader] gives.
type inflater interface {
	io.Reader
	flate.Resetter
}

// unchunker reads chunks. It gives bytes of one segment; at the end of one it
// stands at the beginning of the next.
type unchunker struct {
	r       *bufio.Reader
	offset  int64 // of what was read
	raw     []byte
	head    [chunkHead]byte // of the last chunk
	packed  []byte
	inflate inflater
	begun   bool
}

func newUnchunker(r io.Reader) *unchunker {
	inflate, _ := flate.NewReader(bytes.NewReader(nil)).(inflater) // as its documentation says
	return &unchunker{r: bufio.NewReader(r), inflate: inflate}
}

// segment begins the next segment; io.EOF where there is none.
func (u *unchunker) segment() error {
	head := make([]byte, len(mark)+2)
	n, err := io.ReadFull(u.r, head)
	u.offset += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF) && u.begun:
		return u.cut()
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && string(head[:len(mark)]) != mark:
		return fmt.Errorf("%w: it does not begin as one", ErrFormat)
	case err != nil:
		return err
	}
	if v := binary.BigEndian.Uint16(head[len(mark):]); v != version {
		return fmt.Errorf("%w: its format is version %d, and this isobar reads version %d: use the isobar that recorded it, or a newer one", ErrFormat, v, version)
	}
	u.begun, u.raw = true, u.raw[:0]
	return nil
}

// follows reports whether another segment begins here.
func (u *unchunker) follows() bool {
	head, err := u.r.Peek(len(mark))
	return err == nil && string(head) == mark
}

func (u *unchunker) cut() error {
	return fmt.Errorf("%w after %d bytes", ErrCut, u.offset)
}

// more reads the next chunk, after what is left of the last one; io.EOF at the
// end of the segment.
func (u *unchunker) more() error {
	head, err := u.r.Peek(len(mark))
	if err == nil && string(head) == mark || len(head) == 0 && errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	whole := u.head[:]
	n, err := io.ReadFull(u.r, whole)
	u.offset += int64(n)
	if err != nil {
		return u.short(err)
	}
	packed, raw, sum := binary.BigEndian.Uint32(whole), binary.BigEndian.Uint32(whole[4:]), binary.BigEndian.Uint32(whole[8:])
	if raw == 0 || raw > maxChunk || packed > maxChunk+flateExtra {
		return fmt.Errorf("%w: no chunk at byte %d", ErrDamaged, u.offset-chunkHead)
	}
	u.packed = append(u.packed[:0], make([]byte, packed)...)
	n, err = io.ReadFull(u.r, u.packed)
	u.offset += int64(n)
	if err != nil {
		return u.short(err)
	}
	if crc32.Checksum(u.packed, castagnoli) != sum {
		return fmt.Errorf("%w: the chunk that ends at byte %d has another checksum", ErrDamaged, u.offset)
	}
	return u.unpack(int(raw))
}

func (u *unchunker) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return u.cut()
	}
	return err
}

func (u *unchunker) unpack(size int) error {
	if err := u.inflate.Reset(bytes.NewReader(u.packed), nil); err != nil {
		return err
	}
	from := len(u.raw)
	u.raw = append(u.raw, make([]byte, size)...)
	if _, err := io.ReadFull(u.inflate, u.raw[from:]); err != nil {
		return fmt.Errorf("%w: the chunk that ends at byte %d can't be unpacked", ErrDamaged, u.offset)
	}
	var end [1]byte
	if n, err := u.inflate.Read(end[:]); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the chunk that ends at byte %d is longer than it says", ErrDamaged, u.offset)
	}
	return nil
}

// record returns the next record of the segment, in memory that is good until the
// next one is asked for; io.EOF after the last.
func (u *unchunker) record(most int) (kind byte, payload []byte, err error) {
	var n uint64
	var used int
	for {
		if len(u.raw) > 1 {
			if n, used = binary.Uvarint(u.raw[1:]); used > 0 {
				break
			}
			if used < 0 || len(u.raw) > 1+binary.MaxVarintLen64 {
				return 0, nil, fmt.Errorf("%w: no record before byte %d", ErrDamaged, u.offset)
			}
		}
		was := len(u.raw)
		if err := u.more(); err != nil {
			if was > 0 && errors.Is(err, io.EOF) {
				err = u.cut()
			}
			return 0, nil, err
		}
	}
	if n > uint64(most) { //nolint:gosec // it is not negative
		return 0, nil, fmt.Errorf("%w: a record of %d bytes before byte %d, want at most %d", ErrDamaged, n, u.offset, most)
	}
	from, end := 1+used, 1+used+int(n) //nolint:gosec // it is at most `most`
	for len(u.raw) < end {
		if err := u.more(); err != nil {
			if errors.Is(err, io.EOF) {
				err = u.cut()
			}
			return 0, nil, err
		}
	}
	kind, payload = u.raw[0], u.raw[from:end:end]
	u.raw = u.raw[end:]
	if len(u.raw) == 0 {
		u.raw = nil // what was given out stays as it is
	}
	return kind, payload, nil
}
