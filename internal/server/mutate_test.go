package server_test

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mutation is one field of a message made wrong in one way.
type mutation struct {
	path  string // of the field, with dots
	what  string // is wrong with it
	apply func(root protoreflect.Message)
}

// badText stands for bytes that are no text: proto.Marshal would not write
// them, so they are put in afterwards.
const badText = "@BAD@"

// spoil turns the stand-ins of an encoded message into what they stand for.
func spoil(encoded []byte) []byte {
	return bytes.ReplaceAll(encoded, []byte(badText), []byte("\xff\xfe\xfd\xfc\xfb"))
}

// mutations lists all ways in which a field of a message like full can be
// wrong: every field of every message in it is cleared, emptied, and set to
// extremes, also those that it leaves out.
func mutations(full proto.Message) []mutation {
	return walk(full.ProtoReflect(), "", func(root protoreflect.Message) protoreflect.Message { return root })
}

// reach finds a message within the root.
type reach func(root protoreflect.Message) protoreflect.Message

func walk(m protoreflect.Message, prefix string, at reach) []mutation {
	var out []mutation
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		path := prefix + string(fd.Name())
		if m.Has(fd) {
			out = append(out, mutation{path, "cleared", func(root protoreflect.Message) { at(root).Clear(fd) }})
		}
		switch {
		case fd.IsMap():
			out = append(out, ofMap(fd, path, at)...)
		case fd.IsList():
			out = append(out, ofList(m, fd, path, at)...)
		case fd.Message() != nil:
			out = append(out, mutation{path, "emptied", func(root protoreflect.Message) { at(root).Set(fd, at(root).NewField(fd)) }})
			if m.Has(fd) {
				out = append(out, walk(m.Get(fd).Message(), path+".", func(root protoreflect.Message) protoreflect.Message {
					return at(root).Mutable(fd).Message()
				})...)
			}
		default:
			for _, x := range extremes(fd) {
				out = append(out, mutation{path, x.what, func(root protoreflect.Message) { at(root).Set(fd, x.value) }})
			}
		}
	}
	return out
}

func ofList(m protoreflect.Message, fd protoreflect.FieldDescriptor, path string, at reach) []mutation {
	list := func(root protoreflect.Message) protoreflect.List { return at(root).Mutable(fd).List() }
	out := []mutation{{path, "empty element", func(root protoreflect.Message) { list(root).Append(list(root).NewElement()) }}}
	n := m.Get(fd).List().Len()
	if n > 0 {
		out = append(out, mutation{path, "doubled", func(root protoreflect.Message) {
			for i := range n {
				list(root).Append(list(root).Get(i))
			}
		}})
	}
	if fd.Message() == nil {
		for _, x := range extremes(fd) {
			out = append(out, mutation{path, x.what, func(root protoreflect.Message) { list(root).Append(x.value) }})
		}
		return out
	}
	for i := range min(n, 1) { // the others are alike
		out = append(out, mutation{path, "element emptied", func(root protoreflect.Message) { list(root).Set(i, list(root).NewElement()) }})
		out = append(out, walk(m.Get(fd).List().Get(i).Message(), path+".", func(root protoreflect.Message) protoreflect.Message {
			return list(root).Get(i).Message()
		})...)
	}
	return out
}

func ofMap(fd protoreflect.FieldDescriptor, path string, at reach) []mutation {
	entries := func(root protoreflect.Message) protoreflect.Map { return at(root).Mutable(fd).Map() }
	var out []mutation
	for _, x := range extremes(fd.MapKey()) {
		out = append(out, mutation{path, "key " + x.what, func(root protoreflect.Message) {
			entries(root).Set(x.value.MapKey(), entries(root).NewValue())
		}})
	}
	set := func(what string, value func(root protoreflect.Message) protoreflect.Value) {
		out = append(out, mutation{path, what, func(root protoreflect.Message) {
			keys := []protoreflect.MapKey{}
			entries(root).Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				keys = append(keys, k)
				return true
			})
			for _, k := range keys {
				entries(root).Set(k, value(root))
			}
		}})
	}
	if fd.MapValue().Message() != nil {
		set("values emptied", func(root protoreflect.Message) protoreflect.Value { return entries(root).NewValue() })
		return out
	}
	for _, x := range extremes(fd.MapValue()) {
		set("values "+x.what, func(protoreflect.Message) protoreflect.Value { return x.value })
	}
	return out
}

// extreme is a value that a field is not meant to have.
type extreme struct {
	what  string
	value protoreflect.Value
}

// overlong is more than any name may be.
var overlong = strings.Repeat("x", 100_000)

// extremes lists those of a field that is neither list nor map nor message.
func extremes(fd protoreflect.FieldDescriptor) []extreme {
	all := func(kind string, values ...any) []extreme {
		out := make([]extreme, 0, len(values))
		for i, v := range values {
			out = append(out, extreme{strings.Fields(kind)[i], protoreflect.ValueOf(v)})
		}
		return out
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return all("empty blank control overlong no-text", "", " ", "a\x00\n*", overlong, badText)
	case protoreflect.BytesKind:
		return all("empty zeros", []byte{}, make([]byte, 100_000))
	case protoreflect.BoolKind:
		return all("false true", false, true)
	case protoreflect.EnumKind:
		return all("0 -1 max", protoreflect.EnumNumber(0), protoreflect.EnumNumber(-1), protoreflect.EnumNumber(math.MaxInt32))
	case protoreflect.DoubleKind:
		return all("0 -1 NaN +Inf -Inf max tiny", 0.0, -1.0, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64)
	case protoreflect.FloatKind:
		return all("0 -1 NaN +Inf max", float32(0), float32(-1), float32(math.NaN()), float32(math.Inf(1)), float32(math.MaxFloat32))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return all("0 -1 min max", int32(0), int32(-1), int32(math.MinInt32), int32(math.MaxInt32))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return all("0 -1 min max", int64(0), int64(-1), int64(math.MinInt64), int64(math.MaxInt64))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return all("0 max", uint32(0), uint32(math.MaxUint32))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return all("0 max", uint64(0), uint64(math.MaxUint64))
	case protoreflect.MessageKind, protoreflect.GroupKind:
	}
	return nil
}

// jsonMutations lists copies of a JSON document with each value in turn, however
// deep, replaced by what it should not be, or taken out.
func jsonMutations(doc any) []any {
	wrong := []any{nil, true, -1.0, 1e308, "", overlong, []any{nil}, map[string]any{}}
	var out []any
	switch doc := doc.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(doc)) {
			with := func(v any) map[string]any {
				next := maps.Clone(doc)
				next[k] = v
				return next
			}
			for _, v := range slices.Concat(wrong, jsonMutations(doc[k])) {
				out = append(out, with(v))
			}
			without := with(nil)
			delete(without, k)
			out = append(out, without)
		}
	case []any:
		for i := range doc {
			for _, v := range slices.Concat(wrong, jsonMutations(doc[i])) {
				next := slices.Clone(doc)
				next[i] = v
				out = append(out, next)
			}
		}
	}
	return out
}
