package rpc

import "google.golang.org/protobuf/encoding/protowire"

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
