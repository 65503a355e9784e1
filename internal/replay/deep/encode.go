package deep

import (
	"encoding/binary"
	"unsafe"
)

// ref is memory that is known already: of a pointer, a map, or a slice of n.
type ref struct {
	p unsafe.Pointer
	c *coder
	n int
}

// Encoder writes values, one after the other; what they share is written once.
// It keeps what it has seen, and so alive.
type Encoder struct {
	buf     []byte
	sharing bool // slices, too, keep their identity
	ids     map[ref]uint64
	order   []ref
	queue   []ref // pointers of which the value follows
	strings map[string]uint64
	clock   clock
}

// NewEncoder makes an encoder. With sharing, slices that are the same memory
// are so again when they are read, as pointers and maps always are.
func NewEncoder(sharing bool) *Encoder {
	return &Encoder{sharing: sharing, ids: map[ref]uint64{}, strings: map[string]uint64{}}
}

// Encode adds the value that v, a pointer, points to.
func (e *Encoder) Encode(v any) error {
	r, err := pointed(v)
	if err != nil {
		return err
	}
	r.c.elem.write(e, r.c.elem, r.p)
	for len(e.queue) > 0 { // no recursion: chains of pointers may be long
		r = e.queue[0]
		e.queue = e.queue[1:]
		r.c.elem.write(e, r.c.elem, r.p)
	}
	e.queue = nil
	return nil
}

// Known lets the encoder know a value that its reader has: what is part of it
// is not written again. The reader calls [Decoder.Known] with the same value in
// the same place.
func (e *Encoder) Known(v any) error {
	was := len(e.buf)
	err := e.Encode(v)
	e.buf = e.buf[:was]
	return err
}

// Bytes gives what was written so far. They are the encoder's.
func (e *Encoder) Bytes() []byte { return e.buf }

func (e *Encoder) uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *Encoder) int(v int64)   { e.buf = binary.AppendVarint(e.buf, v) }

// refer writes the number of some memory, and tells whether it is new.
func (e *Encoder) refer(r ref, base uint64) (isNew bool) {
	id, known := e.ids[r]
	if !known {
		id = uint64(len(e.order))
		e.ids[r] = id
		e.order = append(e.order, r)
	}
	e.uint(base + id)
	return !known
}
