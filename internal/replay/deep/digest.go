package deep

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Sum is a digest of a value.
type Sum [sha256.Size]byte

// Digester makes digests of values that do not change: of what they say, not
// of what memory they share. The monotonic readings and zones of times are left
// out. It remembers what it has seen, and keeps it alive, until
// [Digester.Forget].
type Digester struct{ h hasher }

// Sum returns the digest of the value that v, a pointer, points to.
func (d *Digester) Sum(v any) (Sum, error) {
	r, err := pointed(v)
	if err != nil {
		return Sum{}, err
	}
	if d.h.memo == nil {
		d.h.memo = map[ref]Sum{}
	}
	d.h.err = nil
	return d.h.pointee(r), d.h.err
}

// Forget drops what is remembered.
func (d *Digester) Forget() { d.h.memo = nil }

// hasher writes values in the form that digests are made of.
type hasher struct {
	buf   []byte
	memo  map[ref]Sum // nil: nothing is remembered, and there are no pointers
	depth int
	err   error
	// ordering writes texts so that they sort as they do themselves: then entries
	// of a map keep their order under other names that keep theirs.
	ordering bool
}

func (h *hasher) uint(v uint64) { h.buf = binary.BigEndian.AppendUint64(h.buf, v) }

func (h *hasher) pointee(r ref) Sum {
	if s, known := h.memo[r]; known {
		return s
	}
	if h.depth++; h.depth > maxDepth {
		h.err = fmt.Errorf("%w: a %s is part of itself", ErrType, r.c.typ)
		return Sum{}
	}
	from := len(h.buf)
	r.c.elem.sum(h, r.c.elem, r.p)
	s := Sum(sha256.Sum256(h.buf[from:]))
	h.buf = h.buf[:from]
	h.depth--
	if h.memo != nil {
		h.memo[r] = s
	}
	return s
}

func sumByte(h *hasher, _ *coder, p unsafe.Pointer) { h.buf = append(h.buf, *(*byte)(p)) }
func sumUint(h *hasher, c *coder, p unsafe.Pointer) { h.uint(loadUint(c, p)) }

// sumInt keeps the order of numbers, as maps need it.
func sumInt(h *hasher, c *coder, p unsafe.Pointer) {
	h.uint(uint64(loadInt(c, p)) ^ 1<<63) //nolint:gosec // the sign goes first
}

func sumFloat(h *hasher, _ *coder, p unsafe.Pointer) { h.uint(math.Float64bits(*(*float64)(p))) }

func sumFloat32(h *hasher, _ *coder, p unsafe.Pointer) {
	h.uint(uint64(math.Float32bits(*(*float32)(p))))
}

func sumString(h *hasher, _ *coder, p unsafe.Pointer) {
	s := *(*string)(p)
	if h.ordering {
		h.buf = append(append(h.buf, s...), 0)
		return
	}
	h.uint(uint64(len(s)))
	h.buf = append(h.buf, s...)
}

func sumStruct(h *hasher, c *coder, p unsafe.Pointer) {
	for i := range c.fields {
		c.fields[i].coder.sum(h, c.fields[i].coder, at(p, c.fields[i].offset))
	}
}

func sumArray(h *hasher, c *coder, p unsafe.Pointer) {
	for i := range c.typ.Len() {
		c.elem.sum(h, c.elem, at(p, uintptr(i)*c.elem.size))
	}
}

func sumPointer(h *hasher, c *coder, p unsafe.Pointer) {
	target := *(*unsafe.Pointer)(p)
	if target == nil {
		h.buf = append(h.buf, 0)
		return
	}
	s := h.pointee(ref{p: target, c: c})
	h.buf = append(append(h.buf, 1), s[:]...)
}

func sumSlice(h *hasher, c *coder, p unsafe.Pointer) {
	s := (*sliceParts)(p)
	h.uint(uint64(s.len)) //nolint:gosec // lengths are not negative
	for i := range s.len {
		c.elem.sum(h, c.elem, at(s.data, uintptr(i)*c.elem.size))
	}
}

func sumMap(h *hasher, c *coder, p unsafe.Pointer) {
	if *(*unsafe.Pointer)(p) == nil {
		h.uint(0)
		return
	}
	entries := sortedEntries(c, p)
	h.uint(uint64(len(entries)))
	for i := range entries {
		h.buf = append(h.buf, entries[i].order...)
		c.elem.sum(h, c.elem, entries[i].value)
	}
}

func sumTime(h *hasher, _ *coder, p unsafe.Pointer) {
	t := *(*time.Time)(p)
	h.uint(uint64(t.Unix()))       //nolint:gosec // any bits will do
	h.uint(uint64(t.Nanosecond())) //nolint:gosec // not negative
}

// Fingerprint names the types of these values down to the last field: programs
// that agree on it can read what the other wrote.
func Fingerprint(values ...any) (string, error) {
	seen := map[*coder]bool{}
	var lines []string
	var walk func(c *coder)
	walk = func(c *coder) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		words := []string{c.typ.PkgPath(), c.typ.String(), c.typ.Kind().String()}
		for i := range c.fields {
			words = append(words, c.fields[i].name, c.fields[i].coder.typ.String())
			walk(c.fields[i].coder)
		}
		lines = append(lines, strings.Join(words, " "))
		walk(c.key)
		walk(c.elem)
	}
	for _, v := range values {
		c, err := coderOf(reflect.TypeOf(v))
		if err != nil {
			return "", err
		}
		walk(c)
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		h.Write([]byte(line + "\n"))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}
