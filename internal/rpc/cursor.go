package rpc

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// What clients write has its fields in the order of their numbers, with keys of one
// byte. What is below reads such messages straight on, and tells when a message is
// another one: then a cursor reads it again, whatever the bytes may be.

// NextBytes returns the length-delimited field that b begins with if it has this
// key, and what is behind it; else nil and b.
func NextBytes(b []byte, key byte) (v, rest []byte) {
	if len(b) < 2 || b[0] != key {
		return nil, b
	}
	if n := 2 + int(b[1]); b[1] < maxShort && n <= len(b) {
		return b[2:n], b[n:]
	}
	v, n := protowire.ConsumeBytes(b[1:])
	if n < 0 {
		return nil, b
	}
	return v, b[1+n:]
}

// Counters are the varint fields of a message, by their numbers: 1 to 15 are
// those with keys of one byte.
type Counters [16]uint64

// Read reads a message that has such fields and nothing else; ok tells whether it
// is one, fields which ones it has, as bits. Fields of other numbers stay as they
// are in v.
func (v *Counters) Read(b []byte) (fields uint16, ok bool) {
	for len(b) > 1 {
		key, x := b[0], uint64(b[1])
		n := 2
		if x >= maxShort {
			if len(b) > 2 && b[2] < maxShort {
				x, n = x&(maxShort-1)|uint64(b[2])<<7, 3
			} else if x, n = protowire.ConsumeVarint(b[1:]); n < 0 {
				return 0, false
			} else {
				n++
			}
		}
		if key >= maxShort || key&(1<<KeyShift-1) != byte(protowire.VarintType) {
			return 0, false
		}
		field := key >> KeyShift & 15
		v[field] = x
		fields |= 1 << field
		b = b[n:]
	}
	return fields, len(b) == 0
}

// Fields of Locality, Address and SocketAddress.
const (
	LocalityRegion  = 1
	LocalityZone    = 2
	LocalitySubZone = 3

	AddressSocket   = 1
	AddressPipe     = 2
	AddressInternal = 3

	SocketHost      = 2
	SocketPort      = 3
	SocketNamedPort = 4
)

// What a message may make of itself in memory. Two bytes on the wire can be a
// message of 200 bytes, or a text of 16: without a bound 4 MiB become 400 MiB.
const (
	scanFrom    = 64 << 10 // bytes; smaller messages can't do harm
	MaxMessages = 250_000  // and texts in lists, within a message; real reports have 16 bytes and more for each
	maxNesting  = 100
)

// scan counts the messages and list entries within an encoded message, before anything is
// allocated for them; most is how many there may be.
func scan(data []byte, d protoreflect.MessageDescriptor, most int) error {
	left := most
	if err := scanFields(data, d, &left, maxNesting); left >= 0 {
		return err
	}
	return fmt.Errorf("%w: more than %d messages and list entries within it", ErrMessage, most)
}

// ScanJSON does the same for a message in JSON. It counts the fields of messages, too: those
// of a google.protobuf.Struct are messages.
func ScanJSON(body []byte) error {
	n := 0
	for _, b := range body {
		if b == ',' || b == '{' || b == '[' {
			n++
		}
	}
	if n > MaxMessages {
		return fmt.Errorf("%w: more than %d messages, fields and list entries within it", ErrMessage, MaxMessages)
	}
	return nil
}

func scanFields(data []byte, d protoreflect.MessageDescriptor, left *int, depth int) error {
	if depth == 0 {
		return fmt.Errorf("%w: nested more than %d deep", ErrMessage, maxNesting)
	}
	fields := d.Fields()
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return protowire.ParseError(n)
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		f := fields.ByNumber(number)
		message := f != nil && f.Kind() == protoreflect.MessageKind
		if !message && (f == nil || !f.IsList()) {
			continue
		}
		if *left--; *left < 0 {
			return ErrMessage
		}
		if !message {
			continue
		}
		if err := scanFields(value, f.Message(), left, depth-1); err != nil {
			return err
		}
	}
	return nil
}
