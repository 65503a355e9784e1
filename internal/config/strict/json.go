package strict

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// JSON gives the value as JSON, laid out so that each part stands in the line,
// and where there is room in the column, in which it stands in the document:
// whoever reads it further can tell places. Text stays text, numbers are as
// written.
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
		w.put(n.pos, "null")
	case boolKind:
		w.put(n.pos, strings.ToLower(n.text))
	case numberKind:
		if !json.Valid([]byte(n.text)) { // of a notation that only YAML has
			w.put(n.pos, quoted(n.text))
			return
		}
		w.put(n.pos, n.text)
	case listKind:
		w.put(n.pos, "[")
		for i, item := range n.items {
			if i > 0 {
				w.add(",")
			}
			w.value(item)
		}
		w.add("]")
	case objectKind:
		w.put(n.pos, "{")
		for i := range n.fields {
			if i > 0 {
				w.add(",")
			}
			w.put(n.fields[i].pos, quoted(n.fields[i].name)+":")
			w.value(n.fields[i].value)
		}
		w.add("}")
	default: // text, and what is no number in JSON
		w.put(n.pos, quoted(n.text))
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // strings have none
		return `""`
	}
	return string(b)
}
