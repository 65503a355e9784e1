package strict

import (
	"fmt"
	"slices"

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
// its recursion is as deep as the nesting, and the time it takes is quadratic
// in the number of fields of an object and in the number of empty values.
type guarding struct {
	flow   []flow       // open { and [
	block  []level      // open block levels by growing column
	last   *token.Token // the last token with content
	before *token.Token // the one before last
	key    int          // column of the key, when last is a colon
	empty  int          // values that are left out
	seen   bool         // a token with content came before
	ended  bool         // the document was closed by "..."
}

type flow struct {
	object bool // { rather than [
	fields int
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
	if g.leftOut(t) {
		g.empty++
	}
	// Each empty value is an error, so nothing is lost by a limit here.
	if g.empty > MaxProblems {
		return problemAt(pos, "too many empty values", "give each a value, or remove it")
	}
	p := g.nest(t, pos)
	g.before, g.last = g.last, t
	return p
}

// leftOut tells whether the last token is a dash or colon that t gives no value.
func (g *guarding) leftOut(t *token.Token) bool {
	if g.last == nil {
		return false
	}
	if g.bareKey(t) {
		return true
	}
	colon := g.last.Type == token.MappingValueType
	if !colon && g.last.Type != token.SequenceEntryType {
		return false
	}
	if oneOf(t, token.CollectEntryType, token.MappingEndType, token.SequenceEndType) {
		return true
	}
	before, pos := positionOf(g.last), positionOf(t)
	if len(g.flow) > 0 || pos.Line == before.Line {
		return false
	}
	if colon {
		return pos.Column < g.key || pos.Column == g.key && t.Type != token.SequenceEntryType
	}
	return pos.Column <= before.Column
}

func (g *guarding) nest(t *token.Token, pos Position) *Problem {
	fields := 0
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		g.flow = append(g.flow, flow{object: t.Type == token.MappingStartType})
	case token.MappingEndType, token.SequenceEndType:
		g.flow = g.flow[:max(0, len(g.flow)-1)]
	case token.SequenceEntryType:
		g.open(pos.Column)
	case token.MappingValueType:
		fields = g.field(t, pos)
	case token.CollectEntryType: // {a, b} has fields without colons
		if n := len(g.flow); n > 0 && g.flow[n-1].object {
			g.flow[n-1].fields++
			fields = g.flow[n-1].fields / 2 // most have their colon, too
		}
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

// bareKey tells whether t ends a field that is a name without colon, as in {a}.
func (g *guarding) bareKey(t *token.Token) bool {
	n := len(g.flow)
	if n == 0 || !g.flow[n-1].object || g.before == nil || !oneOf(t, token.CollectEntryType, token.MappingEndType) {
		return false
	}
	return oneOf(g.before, token.MappingStartType, token.CollectEntryType) &&
		!oneOf(g.last, token.MappingStartType, token.CollectEntryType, token.MappingValueType, token.MappingEndType, token.SequenceEndType)
}

func oneOf(t *token.Token, types ...token.Type) bool { return slices.Contains(types, t.Type) }

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
		g.flow[n-1].fields++
		if g.flow[n-1].object {
			return g.flow[n-1].fields / 2
		}
		return g.flow[n-1].fields
	}
	if t.Prev != nil && positionOf(t.Prev).Line == pos.Line {
		pos = positionOf(t.Prev)
	}
	g.key = pos.Column
	l := g.open(pos.Column)
	l.fields++
	return l.fields
}
