// Package strict reads YAML (of which JSON is a part) without guessing. A
// document is parsed once; its values are then read one by one through
// [Value], and everything that is wrong is collected with file, line, column
// and a hint, so that a user sees all errors at once.
//
// Refused as a whole: more than [MaxBytes], text that is not UTF-8, more than
// one document, anchors, aliases, merge keys, tags and directives, nesting
// deeper than [MaxDepth], objects of more than [MaxFields] fields, values that take much more
// memory than their text, in documents that use rare forms of YAML more than
// [MaxMarks] of what makes a parser work or [MaxUncommon] bytes, and more than [MaxEmptyLines] in a row
// where texts of several lines are. So no input can expand to more than it
// shows. Refused value by value: unknown and
// repeated fields, null, NaN and infinity, numbers in another notation than
// decimal, and scalars of another type than wanted.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// Limits of a document.
const (
	MaxBytes  = 32 << 20 // bytes of text
	MaxDepth  = 32       // levels of objects and lists within each other
	MaxFields = 256      // fields of one object
)

// Document is a parsed document and the problems found in it so far. It is
// not safe for use by several goroutines at once.
type Document struct {
	report report
	root   *node
}

// Parse reads data; file is the name that problems carry. Errors of syntax are
// problems of the document like all others: see [Document.Result].
func Parse(file string, data []byte) *Document {
	d := &Document{report: report{file: file}}
	text, p := readable(data)
	if p == nil {
		d.root, p = nodesOf(text)
	}
	if p != nil {
		d.report.add(*p)
		d.root = nil
	}
	return d
}

// Root returns the value of the whole document; false when it could not be
// parsed, in which case [Document.Result] tells why.
func (d *Document) Root() (Value, bool) {
	if d.root == nil {
		return Value{}, false
	}
	return Value{doc: d, node: d.root}, true
}

// Result returns the warnings and, as an [*Error], the errors found so far, both
// in the order of their positions.
func (d *Document) Result() (warnings []Problem, err error) { return d.report.sorted() }

// readable checks what must hold before the text is looked at.
func readable(data []byte) (string, *Problem) {
	if len(data) > MaxBytes {
		return "", problemAt(Position{1, 1}, fmt.Sprintf("%d bytes are too many", len(data)),
			fmt.Sprintf("keep it within %d bytes", MaxBytes))
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // a byte order mark
	if p := otherCoding(data); p != nil {
		return "", p
	}
	if utf8.Valid(data) {
		if bytes.Contains(data, []byte("\r\n")) { // YAML reads both ends of lines alike
			data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
		}
		return string(data), nil
	}
	pos := Position{1, 1}
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if r == '\n' {
			pos = Position{pos.Line + 1, 0}
		}
		pos.Column++
		rest = rest[size:]
	}
	return "", problemAt(pos, "not UTF-8 text", "save the file as UTF-8")
}

// otherCoding tells that data is no text, or text in another encoding, which would be errors of
// syntax that nobody understands.
func otherCoding(data []byte) *Problem {
	switch {
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return problemAt(Position{1, 1}, "not UTF-8 text: it is compressed with gzip", "decompress it")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")), bytes.IndexByte(data[:min(len(data), 4)], 0) >= 0:
		return problemAt(Position{1, 1}, "not UTF-8 text: it looks like UTF-16 or UTF-32", "save the file as UTF-8")
	}
	return nil
}

// nodesOf turns text into nodes: by itself where it keeps to common forms, else by the
// parser, which needs so much memory that it gets to see smaller documents only.
func nodesOf(text string) (*node, *Problem) {
	root, doubtful, costly := readQuickly(text, leastCost+costOfByte*len(text))
	switch {
	case root != nil:
		return root, nil
	case costly:
		return nil, problemAt(doubtful, fmt.Sprintf("the values up to here take more memory than the %d bytes of the document may", len(text)),
			"write longer values, or several documents; the memory is enough for endpoints of services")
	}
	if p := tooEmpty(text); p != nil {
		return nil, p
	}
	if p := tooDense(text, doubtful); p != nil {
		return nil, p
	}
	return parse(text)
}

// parse turns text into nodes by the parser. It recurses and is not ours: guard
// bounds what it gets to see, and a panic in it is an error like another.
func parse(text string) (root *node, problem *Problem) {
	defer func() {
		if r := recover(); r != nil {
			root, problem = nil, problemAt(Position{1, 1}, "the YAML parser can't read this text", "write it more simply")
		}
	}()
	tokens := tokensOf(text)
	if p := guard(tokens); p != nil {
		return nil, p
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxProblem(err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, problemAt(positionOf(doc.Body.GetToken()), "a second document", "keep one document in a file")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, problemAt(Position{1, 1}, "the document is empty", "")
	}
	return convert(body, 0)
}

// tokensOf returns the tokens of a text up to its first error, which is a token, too. The
// parser's own lexer goes on behind each error, and makes a token of some 250 bytes for it.
func tokensOf(text string) (tokens token.Tokens) {
	var s scanner.Scanner
	s.Init(text)
	for {
		next, err := s.Scan()
		tokens.Add(next...)
		if err != nil { // the end is one, too
			return tokens
		}
	}
}

func syntaxProblem(err error) *Problem {
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		return problemAt(positionOf(syntax.GetToken()), "not valid YAML: "+syntax.GetMessage(), "")
	}
	return problemAt(Position{1, 1}, "not valid YAML: "+err.Error(), "")
}

func problemAt(pos Position, text, hint string) *Problem {
	return &Problem{Position: pos, Text: text, Hint: hint}
}

func positionOf(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{1, 1}
	}
	return Position{Line: max(1, t.Position.Line), Column: max(1, t.Position.Column)}
}

type kind uint8

const (
	nullKind   kind = iota
	textKind        // quoted or plain text
	numberKind      // what YAML reads as a finite number
	oddKind         // NaN or infinity
	boolKind
	listKind
	objectKind
)

func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "not a finite number", "true or false", "a list", "an object"}[k]
}

// node is one value of a document, free of the parser's types. A document may have millions,
// and most are scalars.
type node struct {
	kind   kind
	quoted bool
	pos    place
	text   string  // of scalars, as written (unquoted)
	inside *inside // of lists and objects; nil for others
}

// fields are those of an object, items those of a list.
func (n *node) fields() []field {
	if n.inside == nil {
		return nil
	}
	return n.inside.fields
}

func (n *node) items() []*node {
	if n.inside == nil {
		return nil
	}
	return n.inside.items
}

// inside is what lists and objects hold.
type inside struct {
	fields []field
	items  []*node
}

type field struct {
	name  string
	pos   place // of the name
	value *node
}

// place is a Position that takes half the memory; no document has 2^31 bytes.
type place struct{ line, column int32 }

func placeOf(p Position) place {
	return place{int32(p.Line), int32(p.Column)} //nolint:gosec // within a document, see above
}

func (p place) position() Position { return Position{int(p.line), int(p.column)} }

// convert turns the parser's tree into ours. depth is bounded once more here,
// so that this recursion does not rest on guard alone.
func convert(n ast.Node, depth int) (*node, *Problem) {
	if n == nil {
		return &node{pos: place{1, 1}}, nil
	}
	pos := positionOf(n.GetToken())
	if depth > 2*MaxDepth {
		return nil, problemAt(pos, "nested too deep", "")
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return &node{kind: nullKind, pos: placeOf(pos)}, nil
	case *ast.BoolNode:
		return &node{kind: boolKind, pos: placeOf(pos), text: n.GetToken().Value}, nil
	case *ast.IntegerNode, *ast.FloatNode:
		return &node{kind: numberKind, pos: placeOf(pos), text: n.GetToken().Value}, nil
	case *ast.NanNode, *ast.InfinityNode:
		return &node{kind: oddKind, pos: placeOf(pos), text: n.GetToken().Value}, nil
	case *ast.StringNode:
		return &node{kind: textKind, pos: placeOf(pos), text: n.Value, quoted: isQuoted(n.GetToken())}, nil
	case *ast.LiteralNode:
		return &node{kind: textKind, pos: placeOf(pos), text: n.Value.Value, quoted: true}, nil
	case *ast.SequenceNode:
		return convertList(n, pos, depth)
	case *ast.MappingNode:
		return convertObject(n.Values, pos, depth)
	case *ast.MappingValueNode:
		return convertObject([]*ast.MappingValueNode{n}, pos, depth)
	default:
		return nil, problemAt(pos, "this form of YAML is not supported", "write plain values, lists and objects")
	}
}

func convertList(n *ast.SequenceNode, pos Position, depth int) (*node, *Problem) {
	out := &node{kind: listKind, pos: placeOf(pos), inside: &inside{items: make([]*node, 0, len(n.Values))}}
	for _, v := range n.Values {
		item, p := convert(v, depth+1)
		if p != nil {
			return nil, p
		}
		out.inside.items = append(out.inside.items, item)
	}
	return out, nil
}

func convertObject(values []*ast.MappingValueNode, pos Position, depth int) (*node, *Problem) {
	out := &node{kind: objectKind, pos: placeOf(pos), inside: &inside{fields: make([]field, 0, len(values))}}
	for i, v := range values {
		keyPos := positionOf(v.Key.GetToken())
		if i == 0 && pos.Line >= keyPos.Line && pos.Column > keyPos.Column {
			out.pos = placeOf(keyPos) // a block object: the parser gives the first colon
		}
		name, ok := keyName(v.Key)
		if !ok {
			return nil, problemAt(keyPos, "a key must be plain text", "")
		}
		value, p := convert(v.Value, depth+1)
		if p != nil {
			return nil, p
		}
		out.inside.fields = append(out.inside.fields, field{name: name, pos: placeOf(keyPos), value: value})
	}
	return out, nil
}

func keyName(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.NanNode, *ast.InfinityNode:
		return k.GetToken().Value, true
	default:
		return "", false
	}
}

func isQuoted(t *token.Token) bool {
	return t != nil && (t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType)
}
