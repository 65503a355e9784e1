package replica

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// Cut cuts a content into its parts: the fields of a protobuf message. Bytes at the end that are no
// field are one part, so together the parts are the content, whatever it is. The rule belongs to the
// protocol between replicas: the digest of a plan depends on it.
func Cut(content []byte) []group.Part {
	var out []group.Part
	for len(content) > 0 {
		whole, _ := nextField(content)
		if whole < 0 {
			whole = len(content)
		}
		out = append(out, group.NewPart(content[:whole:whole]))
		content = content[whole:]
	}
	return out
}

// ContentOf makes a content of bytes, which it keeps.
func ContentOf(data []byte) group.Content { return group.NewContent(Cut(data)) }

// isField reports whether a part is a field, not the end of a content that is no protobuf.
func isField(part []byte) bool {
	whole, _ := nextField(part)
	return whole == len(part)
}

// pieces yields the pieces of a part in order, with their offsets: the fields of a message, or the
// whole part. Together they are the part.
func pieces(part []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) { cutInto(part, 0, 2, yield) }
}

func cutInto(content []byte, at, levels int, yield func(int, []byte) bool) bool {
	for len(content) > 0 {
		whole, value := nextField(content)
		if whole < 0 { // no protobuf: the rest is one piece
			return yield(at, content)
		}
		if levels > 1 && isMessage(value) {
			head := whole - len(value)
			if !yield(at, content[:head]) || !cutInto(value, at+head, levels-1, yield) {
				return false
			}
		} else if !yield(at, content[:whole]) {
			return false
		}
		content, at = content[whole:], at+whole
	}
	return true
}

// nextField returns the length of the field at the beginning, and its value if that is a
// text, bytes or a message; -1 where no field begins. Groups, which proto3 lacks, are no fields:
// to find the end of a group takes as long as the group is.
func nextField(content []byte) (whole int, value []byte) {
	field, kind, tag := protowire.ConsumeTag(content)
	if tag < 0 || kind == protowire.StartGroupType {
		return -1, nil
	}
	length := protowire.ConsumeFieldValue(field, kind, content[tag:])
	if length < 0 {
		return -1, nil
	}
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(content[tag:])
	}
	return tag + length, value
}

// isMessage reports whether a value is long, and has a few fields: a text may be read as
// many short ones.
func isMessage(value []byte) bool {
	const most = 16 // fields
	if len(value) <= 2*leastPiece {
		return false
	}
	for range most {
		whole, _ := nextField(value)
		if whole < 0 || whole == len(value) {
			return whole > 0
		}
		value = value[whole:]
	}
	return false
}
