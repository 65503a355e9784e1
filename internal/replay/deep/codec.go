package deep

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"
)

// Decoder reads what an [Encoder] wrote. Whatever the bytes are, it takes no
// more memory than it may, and never panics.
type Decoder struct {
	data    []byte
	sharing bool
	budget  int64 // bytes of memory that may still be taken
	objects []ref
	queue   []ref
	strings []string
	clock   clock
	depth   int
	err     error

	rename     func(t reflect.Type, text string) string
	knownTexts int // of strings, that are renamed already
}

// Rename lets the decoder replace the texts that it reads, by the text and its type; and fill
// byte slices with zeros, which are texts of others.
func (d *Decoder) Rename(to func(t reflect.Type, text string) string) { d.rename = to }

// maxDepth bounds how deep slices and maps may be nested in each other; types
// of ours stay far below.
const maxDepth = 100

// NewDecoder makes a decoder of bytes; it may take so many bytes of memory.
// sharing is as it was written.
func NewDecoder(data []byte, sharing bool, budget int64) *Decoder {
	return &Decoder{data: data, sharing: sharing, budget: budget}
}

// Decode reads a value into the one that v, a pointer, points to. On an error
// it is of no use.
func (d *Decoder) Decode(v any) error {
	r, err := pointed(v)
	if err != nil {
		return err
	}
	r.c.elem.read(d, r.c.elem, r.p)
	for len(d.queue) > 0 && d.err == nil {
		r = d.queue[0]
		d.queue = d.queue[1:]
		r.c.elem.read(d, r.c.elem, r.p)
	}
	d.queue = nil
	return d.err
}

// Known lets the decoder know a value: see [Encoder.Known].
func (d *Decoder) Known(v any) error {
	e := NewEncoder(d.sharing)
	if err := e.Encode(v); err != nil {
		return err
	}
	d.objects = append(d.objects, e.order...)
	texts := make([]string, len(e.strings))
	for s, id := range e.strings {
		texts[id-1] = s
	}
	d.strings = append(d.strings, texts...)
	d.knownTexts = len(d.strings)
	d.clock = e.clock
	return nil
}

func (d *Decoder) failf(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrData}, args...)...)
		d.data = nil
	}
}

// take is asked before memory is.
func (d *Decoder) take(n int, size uintptr) bool {
	if d.err != nil {
		return false
	}
	need := int64(n) * (int64(size) + 8) //nolint:gosec // n is below 2^40, and types are small
	if d.budget -= need; d.budget < 0 {
		d.failf("it takes more memory than it may")
		return false
	}
	return true
}

func (d *Decoder) uint() uint64 { return varint(d, binary.Uvarint) }

func (d *Decoder) int() int64 { return varint(d, binary.Varint) }

// varint takes a number off the data, as read reads it.
func varint[T int64 | uint64](d *Decoder, read func([]byte) (T, int)) T {
	v, n := read(d.data)
	if n <= 0 {
		d.failf("a number is cut")
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *Decoder) byte() byte {
	if len(d.data) == 0 {
		d.failf("it is cut")
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return b
}

// length reads how many things follow, each of a byte at least.
func (d *Decoder) length() int {
	n := d.uint()
	if n > uint64(len(d.data)) {
		d.failf("%d things in %d bytes", n, len(d.data))
		return 0
	}
	return int(n) //nolint:gosec // it is at most the length of a slice
}

// known finds memory that was read before; false if the number is the next new
// one. A wrong one fails.
func (d *Decoder) known(id uint64, c *coder) (r ref, known bool) {
	switch {
	case id == uint64(len(d.objects)):
		return ref{}, false
	case id > uint64(len(d.objects)):
		d.failf("object %d of %d", id, len(d.objects))
	case d.objects[id].c != c:
		d.failf("object %d is a %s, not a %s", id, d.objects[id].c.typ, c.typ)
	default:
		return d.objects[id], true
	}
	return ref{}, false
}

func (d *Decoder) deeper() bool {
	if d.depth++; d.depth > maxDepth {
		d.failf("nested deeper than %d", maxDepth)
	}
	return d.err == nil
}

func (d *Decoder) higher() { d.depth-- }

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

// Bytes returns what was written so far. They are the encoder's.
func (e *Encoder) Bytes() []byte { return e.buf }

func (e *Encoder) uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *Encoder) int(v int64)   { e.buf = binary.AppendVarint(e.buf, v) }

// refer writes the number of some memory, and reports whether it is new.
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
