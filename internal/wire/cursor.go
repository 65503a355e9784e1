package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// cursor walks over the fields of an encoded message. Between two calls of next
// exactly one of its reading methods has to be called.
type cursor struct {
	rest []byte
	key  uint64 // number and wire type of the field, as encoded
	bad  bool   // the bytes are no message
}

// Keys of fields, as the wire has them.
const (
	keyShift = 3
	maxShort = 0x80 // first key that takes two bytes
)

func keyOf(number protowire.Number, kind protowire.Type) uint64 {
	return protowire.EncodeTag(number, kind)
}

// next goes to the next field and tells whether there is one.
func (c *cursor) next() bool {
	if len(c.rest) == 0 || c.bad {
		return false
	}
	if b := c.rest[0]; b < maxShort && b >= 1<<keyShift {
		c.key, c.rest = uint64(b), c.rest[1:]
		return true
	}
	number, kind, n := protowire.ConsumeTag(c.rest)
	if n < 0 {
		c.bad = true
		return false
	}
	c.key, c.rest = keyOf(number, kind), c.rest[n:]
	return true
}

// bytes reads a length-delimited field.
func (c *cursor) bytes() []byte {
	if len(c.rest) > 0 && c.rest[0] < maxShort {
		if end := 1 + int(c.rest[0]); end <= len(c.rest) {
			v := c.rest[1:end]
			c.rest = c.rest[end:]
			return v
		}
	}
	v, n := protowire.ConsumeBytes(c.rest)
	c.take(n)
	return v
}

func (c *cursor) varint() uint64 {
	if len(c.rest) > 0 && c.rest[0] < maxShort {
		v := uint64(c.rest[0])
		c.rest = c.rest[1:]
		return v
	}
	v, n := protowire.ConsumeVarint(c.rest)
	c.take(n)
	return v
}

func (c *cursor) double() float64 {
	v, n := protowire.ConsumeFixed64(c.rest)
	c.take(n)
	return math.Float64frombits(v)
}

// skip passes over a field that nobody wants.
func (c *cursor) skip() {
	number, kind := protowire.DecodeTag(c.key)
	c.take(protowire.ConsumeFieldValue(number, kind, c.rest))
}

func (c *cursor) take(n int) {
	if n < 0 {
		c.bad = true
		return
	}
	c.rest = c.rest[n:]
}
