package deep

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
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
}

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
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("%w: %T is no pointer to a value", ErrType, v)
	}
	c, err := coderOf(p.Type().Elem())
	if err != nil {
		return err
	}
	c.read(d, c, p.UnsafePointer())
	for len(d.queue) > 0 && d.err == nil {
		r := d.queue[0]
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
	d.clock = e.clock
	return nil
}

// Rest gives the bytes that were not read.
func (d *Decoder) Rest() []byte { return d.data }

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

func readByte(d *Decoder, c *coder, p unsafe.Pointer) {
	b := d.byte()
	if c.typ.Kind() == reflect.Bool && b > 1 {
		d.failf("%d is no truth value", b)
		return
	}
	*(*byte)(p) = b
}

func readUint(d *Decoder, c *coder, p unsafe.Pointer) {
	v := d.uint()
	switch c.size {
	case 2:
		*(*uint16)(p) = uint16(v) //nolint:gosec // checked below
	case 4:
		*(*uint32)(p) = uint32(v) //nolint:gosec // checked below
	default:
		*(*uint64)(p) = v
	}
	if loadUint(c, p) != v {
		d.failf("%d is too large for a %s", v, c.typ)
	}
}

func readInt(d *Decoder, c *coder, p unsafe.Pointer) {
	v := d.int()
	switch c.size {
	case 1:
		*(*int8)(p) = int8(v) //nolint:gosec // checked below
	case 2:
		*(*int16)(p) = int16(v) //nolint:gosec // checked below
	case 4:
		*(*int32)(p) = int32(v) //nolint:gosec // checked below
	default:
		*(*int64)(p) = v
	}
	if loadInt(c, p) != v {
		d.failf("%d is too large for a %s", v, c.typ)
	}
}

func readFloat(d *Decoder, _ *coder, p unsafe.Pointer) {
	*(*float64)(p) = math.Float64frombits(bits.ReverseBytes64(d.uint()))
}

func readString(d *Decoder, _ *coder, p unsafe.Pointer) {
	if id := d.uint(); id > 0 {
		if id > uint64(len(d.strings)) {
			d.failf("text %d of %d", id, len(d.strings))
			return
		}
		*(*string)(p) = d.strings[id-1]
		return
	}
	n := d.length()
	if n == 0 || !d.take(n, 1) {
		return
	}
	s := string(d.data[:n])
	d.data = d.data[n:]
	d.strings = append(d.strings, s)
	*(*string)(p) = s
}

func readStruct(d *Decoder, c *coder, p unsafe.Pointer) {
	for from := 0; from == 0 || from < len(c.fields); from += 64 {
		part := c.fields[from:min(from+64, len(c.fields))]
		set := d.uint()
		if len(part) < 64 && set>>len(part) != 0 {
			d.failf("a %s has no field %d", c.typ, from+63-bits.LeadingZeros64(set))
		}
		for i := range part {
			if set&(1<<i) != 0 && d.err == nil {
				part[i].coder.read(d, part[i].coder, at(p, part[i].offset))
			}
		}
	}
}

func readArray(d *Decoder, c *coder, p unsafe.Pointer) {
	d.byte()
	for i := 0; i < c.typ.Len() && d.err == nil; i++ {
		c.elem.read(d, c.elem, at(p, uintptr(i)*c.elem.size))
	}
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

func readPointer(d *Decoder, c *coder, p unsafe.Pointer) {
	id := d.uint()
	if id == 0 || d.err != nil {
		return
	}
	r, known := d.known(id-1, c)
	if !known {
		if !d.take(1, c.elem.size) {
			return
		}
		r = ref{p: reflect.New(c.elem.typ).UnsafePointer(), c: c}
		d.objects, d.queue = append(d.objects, r), append(d.queue, r)
	}
	*(*unsafe.Pointer)(p) = r.p
}

func readSlice(d *Decoder, c *coder, p unsafe.Pointer) {
	var n int
	switch first := d.uint(); {
	case first == sliceNil:
		return
	case first == sliceEmpty:
		*(*sliceParts)(p) = sliceParts{data: reflect.MakeSlice(c.typ, 0, 0).UnsafePointer()}
		return
	case !d.sharing:
		if n = int(min(first-1, math.MaxInt32)); n > len(d.data) {
			d.failf("%d things in %d bytes", first-1, len(d.data))
		}
	default:
		if r, known := d.known(first-sliceFirst, c); known {
			*(*sliceParts)(p) = sliceParts{data: r.p, len: r.n, cap: r.n}
			return
		}
		if n = d.length(); n == 0 {
			d.failf("a list that is not empty has nothing in it")
		}
	}
	if !d.take(n, c.elem.size) || !d.deeper() {
		return
	}
	defer d.higher()
	s := sliceParts{data: reflect.MakeSlice(c.typ, n, n).UnsafePointer(), len: n, cap: n}
	if d.sharing {
		d.objects = append(d.objects, ref{p: s.data, c: c, n: n})
	}
	*(*sliceParts)(p) = s
	if c.elem.typ.Kind() == reflect.Uint8 {
		copy(unsafe.Slice((*byte)(s.data), n), d.data) //nolint:gosec // it was made with that length
		d.data = d.data[n:]
		return
	}
	for i := 0; i < n && d.err == nil; i++ {
		c.elem.read(d, c.elem, at(s.data, uintptr(i)*c.elem.size))
	}
}

func readMap(d *Decoder, c *coder, p unsafe.Pointer) {
	id := d.uint()
	if id == 0 || d.err != nil {
		return
	}
	if r, known := d.known(id-1, c); known {
		*(*unsafe.Pointer)(p) = r.p
		return
	}
	n := d.length()
	if !d.take(n, 2*(c.key.size+c.elem.size)) || !d.deeper() {
		return
	}
	defer d.higher()
	m := reflect.MakeMapWithSize(c.typ, n)
	d.objects = append(d.objects, ref{p: m.UnsafePointer(), c: c})
	*(*unsafe.Pointer)(p) = m.UnsafePointer()
	for i := 0; i < n && d.err == nil; i++ {
		key, value := reflect.New(c.key.typ), reflect.New(c.elem.typ)
		c.key.read(d, c.key, key.UnsafePointer())
		c.elem.read(d, c.elem, value.UnsafePointer())
		m.SetMapIndex(key.Elem(), value.Elem())
	}
}

func (d *Decoder) deeper() bool {
	if d.depth++; d.depth > maxDepth {
		d.failf("nested deeper than %d", maxDepth)
	}
	return d.err == nil
}

func (d *Decoder) higher() { d.depth-- }

// The seconds that a time with a monotonic reading can tell, from 1885.
const (
	monoEpoch = -2682288000 // 1885-01-01 in Unix time
	monoRange = 1 << 33
)

func readTime(d *Decoder, _ *coder, p unsafe.Pointer) {
	kind := d.byte()
	seconds := d.clock.seconds + d.int()
	nanos := d.uint()
	if kind > timeMono|timeLocal || nanos >= uint64(time.Second) {
		d.failf("no time")
	}
	if d.err != nil {
		return
	}
	d.clock.seconds = seconds
	t := time.Unix(seconds, int64(nanos)) //nolint:gosec // checked
	if kind&timeLocal == 0 {
		t = t.UTC()
	}
	if kind&timeMono != 0 {
		since := seconds - monoEpoch
		if since < 0 || since >= monoRange {
			d.failf("no time of a clock")
			return
		}
		d.clock.mono += d.int()
		parts := (*timeParts)(unsafe.Pointer(&t)) //nolint:gosec // checkTime has looked at it
		parts.wall = hasMonotonic | uint64(since)<<nanosShift | nanos
		parts.ext = d.clock.mono
	}
	*(*time.Time)(p) = t
}
