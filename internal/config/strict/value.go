package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is one value of a document together with its place. Every reading
// method reports what is wrong to the document and then returns the zero value
// and false.
type Value struct {
	doc    *Document
	node   *node
	parent *Value
	name   string // the field that it is, or empty
	index  int    // the item that it is, when name is empty
}

// Field is one field that an object may have.
type Field struct {
	Name     string
	Required bool
	Read     func(Value) // called when the field is there and not null
	// Elsewhere marks a field that does not exist here, but is likely to be
	// looked for: it says where it belongs.
	Elsewhere string
}

// Pos returns where the value stands.
func (v Value) Pos() Position { return v.node.pos.position() }

// Path returns the way from the root, for example services[0].name.
func (v Value) Path() string {
	if v.parent == nil {
		return ""
	}
	up := v.parent.Path()
	switch {
	case v.name == "":
		return up + "[" + strconv.Itoa(v.index) + "]"
	case up == "":
		return v.name
	default:
		return up + "." + v.name
	}
}

// Errorf reports that the value is wrong; hint says what to write instead.
func (v Value) Errorf(hint, format string, args ...any) { v.problemf(false, hint, format, args...) }

// Warnf reports that the value holds, but is likely not what was meant.
func (v Value) Warnf(hint, format string, args ...any) { v.problemf(true, hint, format, args...) }

func (v Value) problemf(warning bool, hint, format string, args ...any) {
	if !warning && v.doc.report.full() {
		v.doc.report.omitted++
		return
	}
	v.doc.report.add(Problem{
		Position: v.node.pos.position(), Path: v.Path(), Warning: warning,
		Text: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// want checks the value's kind.
func (v Value) want(k kind) bool {
	switch {
	case v.node.kind == k:
		return true
	case v.node.kind == nullKind:
		v.Errorf("give "+k.String()+", or leave the field out", "is null")
	case k == textKind && len(v.node.text) > 0:
		v.Errorf("put it in quotes", "want text, got %s (%s)", v.node.kind, clip(v.node.text))
	default:
		v.Errorf("", "want %s, got %s%s", k, v.node.kind, v.shown())
	}
	return false
}

func (v Value) shown() string {
	if v.node.text == "" {
		return ""
	}
	return " (" + clip(v.node.text) + ")"
}

// clip shortens and escapes what is quoted from the input.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.Trim(strconv.Quote(s), `"`)
}

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return v.node.kind == objectKind }

// IsList reports whether the value is a list.
func (v Value) IsList() bool { return v.node.kind == listKind }

// Object reads the fields of an object: unknown, repeated, null and missing
// ones are reported, the others handed to their Read in the order of fields.
func (v Value) Object(fields []Field) bool {
	if !v.want(objectKind) {
		return false
	}
	given := make(map[string]Value, len(v.node.fields()))
	var unknown []*field
	lines := make(map[string]int, len(v.node.fields()))
	for i := range v.node.fields() {
		f := &v.node.inside.fields[i]
		first, repeated := lines[f.name]
		switch {
		case !known(fields, f.name):
			unknown = append(unknown, f)
		case repeated:
			v.at(f).Errorf("keep one of them", "field %q is given twice, first in line %d", f.name, first)
		default:
			lines[f.name] = int(f.pos.line)
			given[f.name] = Value{doc: v.doc, node: f.value, parent: &v, name: f.name}
		}
	}
	missing := v.unknown(unknown, fields, given)
	v.dispatch(fields, given, missing)
	return true
}

// unknown reports unknown fields. One mistake is one error: a field whose name is mistyped is
// read as the one that is meant, so that nothing else misses it, and where one field is
// unknown and one is missing, the error tells both. told is the missing one then.
func (v Value) unknown(unknown []*field, fields []Field, given map[string]Value) (told string) {
	for _, f := range unknown {
		hint, name := v.suggest(f.name, fields)
		_, there := given[name]
		switch missing := required(fields, given); {
		case name != "" && !there:
			given[name] = Value{doc: v.doc, node: f.value, parent: &v, name: clip(f.name)}
		case name == "" && len(unknown) == 1 && len(missing) == 1:
			told = missing[0]
			hint += "; " + told + " is missing"
		}
		v.at(f).Errorf(hint, "unknown field \"%s\"", clip(f.name))
	}
	return told
}

// required lists the required fields that are not given.
func required(fields []Field, given map[string]Value) (missing []string) {
	for _, f := range fields {
		if _, ok := given[f.Name]; f.Required && !ok {
			missing = append(missing, f.Name)
		}
	}
	return missing
}

// suggest returns the hint for an unknown field, and the field that was likely
// meant. It is left out once there are more errors than are told.
func (v Value) suggest(name string, fields []Field) (hint, meant string) {
	if v.doc.report.full() {
		return "", ""
	}
	here := make([]Field, 0, len(fields))
	for _, f := range fields {
		switch {
		case f.Elsewhere == "":
			here = append(here, f)
		case f.Name == name:
			return f.Elsewhere, ""
		}
	}
	return suggest(name, here)
}

// dispatch reads the fields that are given. One of which another error tells that it is
// missing is not reported again.
func (v Value) dispatch(fields []Field, given map[string]Value, told string) {
	for _, f := range fields {
		child, ok := given[f.Name]
		switch {
		case !ok && f.Name == told:
		case !ok && f.Required:
			v.Errorf("add it", "field %q is missing", f.Name)
		case !ok:
		case child.node.kind == nullKind:
			child.Errorf("give a value, or leave the field out", "is null")
		default:
			f.Read(child)
		}
	}
}

// at returns the object's own value with the place of one of its field names.
func (v Value) at(f *field) Value {
	v.node = &node{pos: f.pos}
	return v
}

func known(fields []Field, name string) bool {
	for _, f := range fields {
		if f.Name == name {
			return f.Elsewhere == ""
		}
	}
	return false
}

// List reads a list; null items are reported and left out.
func (v Value) List() ([]Value, bool) {
	if !v.want(listKind) {
		return nil, false
	}
	out := make([]Value, 0, len(v.node.items()))
	for i, n := range v.node.items() {
		item := Value{doc: v.doc, node: n, parent: &v, index: i}
		if n.kind == nullKind {
			item.Errorf("remove the item, or give it a value", "is null")
			continue
		}
		out = append(out, item)
	}
	return out, true
}

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
	out := make([]Entry, 0, len(v.node.fields()))
	lines := make(map[string]int, len(v.node.fields()))
	ok := true
	for i := range v.node.fields() {
		f := &v.node.inside.fields[i]
		child := Value{doc: v.doc, node: f.value, parent: &v, name: clip(f.name)}
		first, repeated := lines[f.name]
		if !repeated {
			lines[f.name] = int(f.pos.line)
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
	ok = ok && len(items) == len(v.node.items())
	out := make([]any, 0, len(items))
	for _, item := range items {
		x, good := item.Any()
		out = append(out, x)
		ok = ok && good
	}
	return out, ok
}

// JSON returns the value as JSON, laid out so that each part stands in the same line as in the
// document, and if possible in the same column: later errors can then name positions. Text stays
// text, numbers are as written.
func (v Value) JSON() []byte {
	w := jsonWriter{line: 1}
	w.value(v.node)
	return w.out.Bytes()
}

type jsonWriter struct {
	out    bytes.Buffer
	line   int
	column int // characters written in the line
}

// put writes a part at its place, or behind what stands there already.
func (w *jsonWriter) put(pos Position, part string) {
	for w.line < pos.Line {
		w.out.WriteByte('\n')
		w.line, w.column = w.line+1, 0
	}
	for w.line == pos.Line && w.column < pos.Column-1 {
		w.out.WriteByte(' ')
		w.column++
	}
	w.add(part)
}

func (w *jsonWriter) add(part string) {
	w.out.WriteString(part)
	w.column += utf8.RuneCountInString(part)
}

func (w *jsonWriter) value(n *node) {
	switch n.kind {
	case nullKind:
		w.put(n.pos.position(), "null")
	case boolKind:
		w.put(n.pos.position(), strings.ToLower(n.text))
	case numberKind:
		if !json.Valid([]byte(n.text)) { // of a notation that only YAML has
			w.put(n.pos.position(), quoted(n.text))
			return
		}
		w.put(n.pos.position(), n.text)
	case listKind:
		w.put(n.pos.position(), "[")
		for i, item := range n.items() {
			if i > 0 {
				w.add(",")
			}
			w.value(item)
		}
		w.add("]")
	case objectKind:
		w.put(n.pos.position(), "{")
		for i := range n.fields() {
			if i > 0 {
				w.add(",")
			}
			w.put(n.inside.fields[i].pos.position(), quoted(n.inside.fields[i].name)+":")
			w.value(n.inside.fields[i].value)
		}
		w.add("}")
	default: // text, and what is no number in JSON
		w.put(n.pos.position(), quoted(n.text))
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // strings have none
		return `""`
	}
	return string(b)
}
