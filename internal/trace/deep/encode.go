package deep

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"time"
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

// clock is the time before, from which the next one is told.
type clock struct {
	seconds, mono int64
}

// NewEncoder makes an encoder. With sharing, slices that are the same memory
// are so again when they are read, as pointers and maps always are.
func NewEncoder(sharing bool) *Encoder {
	return &Encoder{sharing: sharing, ids: map[ref]uint64{}, strings: map[string]uint64{}}
}

// Encode adds the value that v, a pointer, points to.
func (e *Encoder) Encode(v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("%w: %T is no pointer to a value", ErrType, v)
	}
	c, err := coderOf(p.Type().Elem())
	if err != nil {
		return err
	}
	c.write(e, c, p.UnsafePointer())
	for len(e.queue) > 0 { // no recursion: chains of pointers may be long
		r := e.queue[0]
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

func writeByte(e *Encoder, _ *coder, p unsafe.Pointer) { e.buf = append(e.buf, *(*byte)(p)) }
func writeUint(e *Encoder, c *coder, p unsafe.Pointer) { e.uint(loadUint(c, p)) }
func writeInt(e *Encoder, c *coder, p unsafe.Pointer)  { e.int(loadInt(c, p)) }

// writeFloat puts the end first: most numbers are short in binary.
func writeFloat(e *Encoder, _ *coder, p unsafe.Pointer) {
	e.uint(bits.ReverseBytes64(math.Float64bits(*(*float64)(p))))
}

func loadUint(c *coder, p unsafe.Pointer) uint64 {
	switch c.size {
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

func loadInt(c *coder, p unsafe.Pointer) int64 {
	switch c.size {
	case 1:
		return int64(*(*int8)(p))
	case 2:
		return int64(*(*int16)(p))
	case 4:
		return int64(*(*int32)(p))
	default:
		return *(*int64)(p)
	}
}

// writeString writes a text once, and its number then.
func writeString(e *Encoder, _ *coder, p unsafe.Pointer) {
	s := *(*string)(p)
	if s == "" {
		e.uint(0)
		e.uint(0)
		return
	}
	if id, known := e.strings[s]; known {
		e.uint(id)
		return
	}
	e.strings[s] = uint64(len(e.strings)) + 1
	e.uint(0)
	e.uint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

// writeStruct writes a bit for each field, and the fields that are not zero.
func writeStruct(e *Encoder, c *coder, p unsafe.Pointer) {
	for from := 0; from == 0 || from < len(c.fields); from += 64 {
		part := c.fields[from:min(from+64, len(c.fields))]
		var set uint64
		for i := range part {
			if !isZero(at(p, part[i].offset), part[i].coder.size) {
				set |= 1 << i
			}
		}
		e.uint(set)
		for i := range part {
			if set&(1<<i) != 0 {
				part[i].coder.write(e, part[i].coder, at(p, part[i].offset))
			}
		}
	}
}

func writeArray(e *Encoder, c *coder, p unsafe.Pointer) {
	e.buf = append(e.buf, 0) // everything takes a byte at least
	for i := range c.typ.Len() {
		c.elem.write(e, c.elem, at(p, uintptr(i)*c.elem.size))
	}
}

func writePointer(e *Encoder, c *coder, p unsafe.Pointer) {
	target := *(*unsafe.Pointer)(p)
	if target == nil {
		e.uint(0)
		return
	}
	r := ref{p: target, c: c}
	if e.refer(r, 1) {
		e.queue = append(e.queue, r)
	}
}

// Slices begin with one of these, or with a number above.
const (
	sliceNil = iota
	sliceEmpty
	sliceFirst
)

func writeSlice(e *Encoder, c *coder, p unsafe.Pointer) {
	s := (*sliceParts)(p)
	switch {
	case s.data == nil:
		e.uint(sliceNil)
		return
	case s.len == 0:
		e.uint(sliceEmpty)
		return
	case !e.sharing:
		e.uint(uint64(s.len) - 1 + sliceFirst) //nolint:gosec // it is at least 1
	case !e.refer(ref{p: s.data, c: c, n: s.len}, sliceFirst):
		return
	default:
		e.uint(uint64(s.len)) //nolint:gosec // lengths are not negative
	}
	if c.elem.typ.Kind() == reflect.Uint8 {
		e.buf = append(e.buf, unsafe.Slice((*byte)(s.data), s.len)...) //nolint:gosec // it is a slice of that length
		return
	}
	for i := range s.len {
		c.elem.write(e, c.elem, at(s.data, uintptr(i)*c.elem.size))
	}
}

func writeMap(e *Encoder, c *coder, p unsafe.Pointer) {
	target := *(*unsafe.Pointer)(p)
	if target == nil {
		e.uint(0)
		return
	}
	if !e.refer(ref{p: target, c: c}, 1) {
		return
	}
	entries := sortedEntries(c, p)
	e.uint(uint64(len(entries)))
	for i := range entries {
		c.key.write(e, c.key, entries[i].key)
		c.elem.write(e, c.elem, entries[i].value)
	}
}

// entry is one of a map, in memory of its own.
type entry struct {
	order      []byte
	key, value unsafe.Pointer
}

// sortedEntries lists a map in an order that does not depend on memory.
func sortedEntries(c *coder, p unsafe.Pointer) []entry {
	m := reflect.NewAt(c.typ, p).Elem()
	out := make([]entry, 0, m.Len())
	var h hasher
	for iter := m.MapRange(); iter.Next(); {
		key, value := reflect.New(c.key.typ), reflect.New(c.elem.typ)
		key.Elem().SetIterKey(iter)
		value.Elem().SetIterValue(iter)
		from := len(h.buf)
		c.key.sum(&h, c.key, key.UnsafePointer())
		out = append(out, entry{order: h.buf[from:len(h.buf):len(h.buf)], key: key.UnsafePointer(), value: value.UnsafePointer()})
	}
	slices.SortFunc(out, func(a, b entry) int { return bytes.Compare(a.order, b.order) })
	return out
}

// Times begin with these bits.
const (
	timeMono  = 1 << iota // there is a monotonic reading
	timeLocal             // to be shown in the reader's time zone, else in UTC
)

func writeTime(e *Encoder, _ *coder, p unsafe.Pointer) {
	t := *(*time.Time)(p)
	if t.Location() != time.Local && t.Location() != time.UTC { //nolint:gosmopolitan // it is where times come from
		t = t.UTC()
	}
	parts := (*timeParts)(unsafe.Pointer(&t)) //nolint:gosec // checkTime has looked at it
	var kind byte
	if parts.loc == time.Local { //nolint:gosmopolitan // it is where times come from
		kind |= timeLocal
	}
	seconds, nanos := t.Unix(), int64(t.Nanosecond())
	if parts.wall&hasMonotonic != 0 {
		kind |= timeMono
	}
	e.buf = append(e.buf, kind)
	e.int(seconds - e.clock.seconds)
	e.uint(uint64(nanos)) //nolint:gosec // not negative
	e.clock.seconds = seconds
	if kind&timeMono != 0 {
		e.int(parts.ext - e.clock.mono)
		e.clock.mono = parts.ext
	}
}
