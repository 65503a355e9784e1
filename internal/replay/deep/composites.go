package deep

import (
	"bytes"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"unsafe"
)

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

func writeArray(e *Encoder, c *coder, p unsafe.Pointer) {
	e.buf = append(e.buf, 0) // everything takes a byte at least
	for i := range c.typ.Len() {
		c.elem.write(e, c.elem, at(p, uintptr(i)*c.elem.size))
	}
}

func readArray(d *Decoder, c *coder, p unsafe.Pointer) {
	d.byte()
	for i := 0; i < c.typ.Len() && d.err == nil; i++ {
		c.elem.read(d, c.elem, at(p, uintptr(i)*c.elem.size))
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
		if d.rename == nil || c.elem.typ != reflect.TypeFor[byte]() {
			copy(unsafe.Slice((*byte)(s.data), n), d.data) //nolint:gosec // it was made with that length
		}
		d.data = d.data[n:]
		return
	}
	for i := 0; i < n && d.err == nil; i++ {
		c.elem.read(d, c.elem, at(s.data, uintptr(i)*c.elem.size))
	}
}

// sliceParts is the memory of a slice.
type sliceParts struct {
	data     unsafe.Pointer
	len, cap int
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
		h.ordering = true
		c.key.sum(&h, c.key, key.UnsafePointer())
		h.ordering = false // texts that hold zeros are told apart by this
		c.key.sum(&h, c.key, key.UnsafePointer())
		out = append(out, entry{order: h.buf[from:len(h.buf):len(h.buf)], key: key.UnsafePointer(), value: value.UnsafePointer()})
	}
	slices.SortFunc(out, func(a, b entry) int { return bytes.Compare(a.order, b.order) })
	return out
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
