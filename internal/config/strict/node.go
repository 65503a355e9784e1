package strict

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

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

// node is one value of a document, free of the parser's types.
type node struct {
	kind   kind
	quoted bool
	text   string // of scalars, as written (unquoted)
	pos    Position
	fields []field
	items  []*node
}

type field struct {
	name  string
	pos   Position // of the name
	value *node
}

// convert turns the parser's tree into ours. depth is bounded once more here,
// so that this recursion does not rest on guard alone.
func convert(n ast.Node, depth int) (*node, *Problem) {
	if n == nil {
		return &node{pos: Position{1, 1}}, nil
	}
	pos := positionOf(n.GetToken())
	if depth > 2*MaxDepth {
		return nil, problemAt(pos, "nested too deep", "")
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return &node{kind: nullKind, pos: pos}, nil
	case *ast.BoolNode:
		return &node{kind: boolKind, pos: pos, text: n.GetToken().Value}, nil
	case *ast.IntegerNode, *ast.FloatNode:
		return &node{kind: numberKind, pos: pos, text: n.GetToken().Value}, nil
	case *ast.NanNode, *ast.InfinityNode:
		return &node{kind: oddKind, pos: pos, text: n.GetToken().Value}, nil
	case *ast.StringNode:
		return &node{kind: textKind, pos: pos, text: n.Value, quoted: isQuoted(n.GetToken())}, nil
	case *ast.LiteralNode:
		return &node{kind: textKind, pos: pos, text: n.Value.Value, quoted: true}, nil
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
	out := &node{kind: listKind, pos: pos, items: make([]*node, 0, len(n.Values))}
	for _, v := range n.Values {
		item, p := convert(v, depth+1)
		if p != nil {
			return nil, p
		}
		out.items = append(out.items, item)
	}
	return out, nil
}

func convertObject(values []*ast.MappingValueNode, pos Position, depth int) (*node, *Problem) {
	out := &node{kind: objectKind, pos: pos, fields: make([]field, 0, len(values))}
	for i, v := range values {
		keyPos := positionOf(v.Key.GetToken())
		if i == 0 && pos.Line >= keyPos.Line && pos.Column > keyPos.Column {
			out.pos = keyPos // a block object: the parser gives the first colon
		}
		name, ok := keyName(v.Key)
		if !ok {
			return nil, problemAt(keyPos, "a key must be plain text", "")
		}
		value, p := convert(v.Value, depth+1)
		if p != nil {
			return nil, p
		}
		out.fields = append(out.fields, field{name: name, pos: keyPos, value: value})
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
