package strict

import "math"

// Entry is one field of an object whose names are the user's.
type Entry struct {
	Name  string
	Value Value
}

// Entries reads an object whose fields have any names, in their order:
// repeated, null and nameless ones are reported and left out.
func (v Value) Entries() ([]Entry, bool) {
	if !v.want(objectKind) {
		return nil, false
	}
	out := make([]Entry, 0, len(v.node.fields))
	lines := make(map[string]int, len(v.node.fields))
	ok := true
	for i := range v.node.fields {
		f := &v.node.fields[i]
		child := Value{doc: v.doc, node: f.value, parent: &v, name: clip(f.name)}
		first, repeated := lines[f.name]
		if !repeated {
			lines[f.name] = f.pos.Line
		}
		switch {
		case f.name == "":
			v.at(f).Errorf("give it a name", "a field without a name")
		case repeated:
			v.at(f).Errorf("keep one of them", "field %q is given twice, first in line %d", clip(f.name), first)
		case f.value.kind == nullKind:
			child.Errorf("give a value, or leave the field out", "is null")
		default:
			out = append(out, Entry{Name: f.name, Value: child})
			continue
		}
		ok = false
	}
	return out, ok
}

// Any reads a value of any kind but null, as encoding/json would give it: bool,
// float64, string, []any or map[string]any. Depth is bounded by [MaxDepth].
func (v Value) Any() (any, bool) {
	switch n := v.node; {
	case n.kind == objectKind:
		return v.anyObject()
	case n.kind == listKind:
		return v.anyList()
	case n.kind == boolKind:
		return v.Bool()
	case n.kind == numberKind, n.kind == oddKind, n.kind == textKind && !n.quoted && decimal.MatchString(n.text):
		x, ok := v.finite()
		if ok && x == math.Trunc(x) && math.Abs(x) >= 1<<53 {
			v.Errorf("put it in quotes", "%s has more digits than clients keep of a number", clip(n.text))
			return nil, false
		}
		return x, ok
	case n.kind == textKind:
		return n.text, true
	default:
		v.Errorf("give a value, or leave the field out", "is null")
		return nil, false
	}
}

func (v Value) anyObject() (any, bool) {
	entries, ok := v.Entries()
	out := make(map[string]any, len(entries))
	for _, e := range entries {
		x, good := e.Value.Any()
		out[e.Name] = x
		ok = ok && good
	}
	return out, ok
}

func (v Value) anyList() (any, bool) {
	items, ok := v.List()
	ok = ok && len(items) == len(v.node.items)
	out := make([]any, 0, len(items))
	for _, item := range items {
		x, good := item.Any()
		out = append(out, x)
		ok = ok && good
	}
	return out, ok
}
