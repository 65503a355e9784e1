package strict

import (
	"fmt"
	"slices"
	"strings"

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

// leftOut reports whether the last token is a dash or colon that t gives no value.
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

// bareKey reports whether t ends a field that is a name without colon, as in {a}.
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

// MaxMarks is how many lines, brackets, separators and quoted texts a document
// may have that does not keep to common forms of YAML. The parser takes some 900 bytes of
// memory for each.
const MaxMarks = 1 << 18

// MaxUncommon is how many bytes such a document may have. The parser keeps the text, and what
// it has not divided yet twice, with four bytes for each character.
const MaxUncommon = 4 << 20

// hintUncommon says what large documents may have.
const hintUncommon = "large documents are read with names and texts of one line only, " +
	"without tabs, escapes in quotes, empty values, comments in brackets, | and >"

// tooDense tells that a text has more than [MaxMarks] or [MaxUncommon], and of the place
// where it does not keep to common forms; nil where it has not. It is looked at before the
// parser sees the text.
func tooDense(text string, uncommon Position) *Problem {
	if len(text) > MaxUncommon {
		return problemAt(uncommon, fmt.Sprintf("an error, or a rare form of YAML, in a document of more than %d bytes", MaxUncommon), hintUncommon)
	}
	marks := 0
	for i := range len(text) {
		if !isMark(text, i) {
			continue
		}
		if marks++; marks > MaxMarks {
			return problemAt(uncommon,
				fmt.Sprintf("an error, or a rare form of YAML, in a document of more than %d lines, brackets, separators and quoted texts", MaxMarks),
				hintUncommon)
		}
	}
	return nil
}

// isMark reports whether a byte is one after which a parser begins something new.
// Dashes and colons within words, such as those of names and addresses, are not.
func isMark(text string, i int) bool {
	switch c := text[i]; c {
	case '\n', '{', '}', '[', ']', ',', '#', '?', '&', '*', '!', '%':
		return true
	case '"', '\'': // one that ends a text is followed by what counts anyway
		return i+1 == len(text) || strings.IndexByte(",:}]\r\n", text[i+1]) < 0
	case '-', ':':
		after := i+1 == len(text) || strings.IndexByte(" \t\r\n", text[i+1]) >= 0
		return after || c == ':' && i > 0 && (text[i-1] == '"' || text[i-1] == '\'')
	default:
		return false
	}
}

// MaxEmptyLines is how many empty lines in a row a document may have below a
// line that ends in | or >, as those do that open a text of several lines. The
// parser takes the empty ones at its end off one by one and copies the text each
// time, so that 16 KB of them would take it seconds, and 4 MiB days.
const MaxEmptyLines = 16

// tooEmpty reports the place where there are more than [MaxEmptyLines] in a row;
// nil where there are not. It is looked at before the parser sees the text, so it
// does not ask how far the text goes that was opened, or whether it was one.
func tooEmpty(text string) *Problem {
	opened, empty := false, 0
	for number := 1; text != ""; number++ {
		line, rest := cutLine(text)
		text = rest
		if strings.Trim(line, " \t") != "" {
			opened, empty = opened || opensBlock(line), 0
			continue
		}
		if empty++; opened && empty > MaxEmptyLines {
			return problemAt(Position{number, 1}, fmt.Sprintf("more than %d empty lines in a row, and a text that begins with | or > before them", MaxEmptyLines),
				`remove them; where they are meant, write the text in double quotes, with \n for line breaks`)
		}
	}
	return nil
}

// cutLine takes the first line off a text. Like the parser it ends lines at a
// carriage return, too.
func cutLine(text string) (line, rest string) {
	at := strings.IndexAny(text, "\r\n")
	if at < 0 {
		return text, ""
	}
	line, rest = text[:at], text[at+1:]
	if text[at] == '\r' {
		rest = strings.TrimPrefix(rest, "\n")
	}
	return line, rest
}

// opensBlock reports whether there is a | or > in a line with nothing behind it
// but options and a comment.
func opensBlock(line string) bool {
	for {
		at := strings.IndexAny(line, "|>")
		if at < 0 {
			return false
		}
		line = line[at+1:]
		if behind := strings.TrimLeft(line, "+-0123456789 \t"); behind == "" || behind[0] == '#' {
			return true
		}
	}
}
