package rpc

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Cursor walks over the fields of an encoded message. Between two calls of Next
// exactly one of its reading methods has to be called.
type Cursor struct {
	Rest []byte
	Key  uint64 // number and wire type of the field, as encoded
	Bad  bool   // the bytes are no message
}

// Keys of fields, as the wire has them.
const (
	KeyShift = 3
	maxShort = 0x80 // first key that takes two bytes
)

func keyOf(number protowire.Number, kind protowire.Type) uint64 {
	return protowire.EncodeTag(number, kind)
}

// Next goes to the next field and reports whether there is one.
func (c *Cursor) Next() bool {
	if len(c.Rest) == 0 || c.Bad {
		return false
	}
	if b := c.Rest[0]; b < maxShort && b >= 1<<KeyShift {
		c.Key, c.Rest = uint64(b), c.Rest[1:]
		return true
	}
	number, kind, n := protowire.ConsumeTag(c.Rest)
	if n < 0 {
		c.Bad = true
		return false
	}
	c.Key, c.Rest = keyOf(number, kind), c.Rest[n:]
	return true
}

// Bytes reads a length-delimited field.
func (c *Cursor) Bytes() []byte {
	if len(c.Rest) > 0 && c.Rest[0] < maxShort {
		if end := 1 + int(c.Rest[0]); end <= len(c.Rest) {
			v := c.Rest[1:end]
			c.Rest = c.Rest[end:]
			return v
		}
	}
	v, n := protowire.ConsumeBytes(c.Rest)
	c.take(n)
	return v
}

// Varint reads a field of that type.
func (c *Cursor) Varint() uint64 {
	if len(c.Rest) > 0 && c.Rest[0] < maxShort {
		v := uint64(c.Rest[0])
		c.Rest = c.Rest[1:]
		return v
	}
	v, n := protowire.ConsumeVarint(c.Rest)
	c.take(n)
	return v
}

// Double reads a field of 64 bits as a floating-point number.
func (c *Cursor) Double() float64 {
	v, n := protowire.ConsumeFixed64(c.Rest)
	c.take(n)
	return math.Float64frombits(v)
}

// Skip passes over a field.
func (c *Cursor) Skip() {
	number, kind := protowire.DecodeTag(c.Key)
	c.take(protowire.ConsumeFieldValue(number, kind, c.Rest))
}

func (c *Cursor) take(n int) {
	if n < 0 {
		c.Bad = true
		return
	}
	c.Rest = c.Rest[n:]
}
