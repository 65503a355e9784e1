package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
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
