package strict

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// forbidden are the features of YAML that configuration does without, each
// with what to write instead.
var forbidden = map[token.Type][2]string{
	token.AnchorType:     {"anchors are not supported", "write the value out where it is used"},
	token.AliasType:      {"aliases are not supported", "write the value out, or put text that begins with * in quotes"},
	token.MergeKeyType:   {"merge keys are not supported", "write the fields out"},
	token.TagType:        {"tags are not supported", "leave the tag out, or put text that begins with ! in quotes"},
	token.DirectiveType:  {"directives are not supported", "leave the line out"},
	token.MappingKeyType: {"complex keys are not supported", "write plain names as keys"},
	token.InvalidType:    {"not valid YAML: unexpected text", "look for an unclosed quote or a tab used as indentation"},
}

// guarding is a scan over the tokens that bounds what the parser will see:
// its recursion is as deep as the nesting, and the time it takes for an object
// is quadratic in the number of fields.
type guarding struct {
	flow  []int   // fields seen in each open { or [
	block []level // open block levels by growing column
	seen  bool    // a token with content came before
	ended bool    // the document was closed by "..."
}

type level struct{ column, fields int }

func guard(tokens token.Tokens) *Problem {
	var g guarding
	for _, t := range tokens {
		if p := g.step(t); p != nil {
			return p
		}
	}
	return nil
}

func (g *guarding) step(t *token.Token) *Problem {
	pos := positionOf(t)
	if text, bad := forbidden[t.Type]; bad {
		if t.Type == token.InvalidType && t.Error != "" {
			return problemAt(pos, "not valid YAML: "+t.Error, "")
		}
		return problemAt(pos, text[0], text[1])
	}
	switch t.Type {
	case token.CommentType, token.SpaceType:
		return nil
	case token.DocumentHeaderType:
		if g.seen {
			return problemAt(pos, "a second document", "keep one document in a file")
		}
		g.seen = true
		return nil
	case token.DocumentEndType:
		g.ended = true
		return nil
	default:
	}
	if g.ended {
		return problemAt(pos, "a second document", "keep one document in a file")
	}
	g.seen = true
	return g.nest(t, pos)
}

func (g *guarding) nest(t *token.Token, pos Position) *Problem {
	fields := 0
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		g.flow = append(g.flow, 0)
	case token.MappingEndType, token.SequenceEndType:
		g.flow = g.flow[:max(0, len(g.flow)-1)]
	case token.SequenceEntryType:
		g.open(pos.Column)
	case token.MappingValueType:
		fields = g.field(t, pos)
	default:
	}
	if len(g.flow)+len(g.block) > MaxDepth {
		return problemAt(pos, fmt.Sprintf("nested deeper than %d levels", MaxDepth), "")
	}
	if fields > MaxFields {
		return problemAt(pos, fmt.Sprintf("more than %d fields in one object", MaxFields), "")
	}
	return nil
}

// open closes the block levels right of column and opens one there, unless it
// is open already.
func (g *guarding) open(column int) *level {
	if len(g.flow) > 0 { // columns mean nothing within { and [
		return &level{}
	}
	for len(g.block) > 0 && g.block[len(g.block)-1].column > column {
		g.block = g.block[:len(g.block)-1]
	}
	if len(g.block) == 0 || g.block[len(g.block)-1].column < column {
		g.block = append(g.block, level{column: column})
	}
	return &g.block[len(g.block)-1]
}

// field counts a field, whose colon is t, of the innermost object.
func (g *guarding) field(t *token.Token, pos Position) int {
	if n := len(g.flow); n > 0 {
		g.flow[n-1]++
		return g.flow[n-1]
	}
	if t.Prev != nil && positionOf(t.Prev).Line == pos.Line {
		pos = positionOf(t.Prev)
	}
	l := g.open(pos.Column)
	l.fields++
	return l.fields
}
