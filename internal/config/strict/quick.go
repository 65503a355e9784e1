package strict

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// What a value costs in memory, in bytes: the node itself, its place in a list that may
// have grown by half, and what a field of an object takes beside its value.
const (
	nodeCost   = 64
	insideCost = 64 // of a list or object beside that
	fieldCost  = 48
	usedFields = 3 // for which an object has memory at first
	// Nodes may cost some for each byte of text: endpoints take 5 to 8, latencies of pairs 11 to 15.
	costOfByte = 16
	leastCost  = 8 << 20
)

// Limits of quick below those of a document: what is beyond them is left to the parser
// and the scan before it, which refuse it with its place.
const (
	quickDepth  = MaxDepth - 4
	quickFields = MaxFields - 8
)

// quick reads the forms of YAML that nearly all documents keep to, JSON among them: block
// and flow lists and objects, plain and quoted texts of one line, comments. It makes
// nothing but nodes, and charges each before it is made; the parser takes some ten times
// the memory. Whatever is unusual, or wrong, it leaves to the parser.
type quick struct {
	text  string
	at    int // of what comes next
	line  int // of at, from 1
	began int // where that line begins
	told  int // up to where its characters are counted, which are so many:
	chars int
	depth int
	cost  int // bytes that nodes may still take
	names map[string]string
}

// giveUp is the panic that ends the quick reader; it never leaves [readQuickly].
type giveUp struct{}

// readQuickly returns the nodes of a text. Otherwise it returns the place of what it leaves to
// the parser, and whether it stopped because of the cost.
func readQuickly(text string, cost int) (root *node, doubtful Position, costly bool) {
	q := &quick{text: text, line: 1, cost: cost, names: map[string]string{}}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(giveUp); !ok {
				panic(r)
			}
			root, doubtful, costly = nil, q.pos(q.at), q.cost < 0
		}
	}()
	if strings.IndexByte(text, '\r') >= 0 {
		return nil, Position{1, 1}, false
	}
	q.nextLine()
	if q.column() == 0 && strings.HasPrefix(text[q.at:], "---\n") {
		q.at += len("---")
		q.nextLine()
	}
	q.sure(q.at < len(text))
	root = q.block(-1)
	q.sure(q.at == len(text))
	return root, Position{}, false
}

func (q *quick) sure(ok bool) {
	if !ok {
		panic(giveUp{})
	}
}

// charge takes what is about to be made off the cost that is left.
func (q *quick) charge(cost int) {
	q.cost -= cost
	q.sure(q.cost >= 0)
}

func (q *quick) make(k kind, at int) *node {
	q.charge(nodeCost)
	return &node{kind: k, pos: placeOf(q.pos(at))}
}

func (q *quick) makeList(at int) *node {
	q.charge(insideCost)
	n := q.make(listKind, at)
	n.inside = &inside{}
	return n
}

func (q *quick) makeObject(at int) *node {
	q.charge(insideCost)
	n := q.make(objectKind, at)
	n.inside = &inside{fields: make([]field, 0, usedFields)}
	return n
}

// pos is the position of a byte of the line that is read, which is behind all that it
// was asked for before.
func (q *quick) pos(at int) Position {
	at = min(at, len(q.text))
	if q.told < q.began || at < q.told {
		q.told, q.chars = q.began, 0
	}
	q.chars += utf8.RuneCountInString(q.text[q.told:at])
	q.told = at
	return Position{q.line, q.chars + 1}
}

// column counts the bytes of the line before what comes next; they are blanks, dashes and keys.
func (q *quick) column() int { return q.at - q.began }

// peek is the next byte, 0 at the end.
func (q *quick) peek() byte { return q.ahead(0) }

func (q *quick) ahead(n int) byte {
	if q.at+n < len(q.text) {
		return q.text[q.at+n]
	}
	return 0
}

func (q *quick) blanks() {
	for q.peek() == ' ' {
		q.at++
	}
}

// nextLine goes to the next content, from where only blanks and a comment may stand in
// this line.
func (q *quick) nextLine() {
	for q.at < len(q.text) {
		before := q.at
		q.blanks()
		if q.peek() == '#' {
			q.sure(q.at > before || q.at == q.began)
			end := strings.IndexByte(q.text[q.at:], '\n')
			if end < 0 {
				end = len(q.text) - q.at
			}
			q.at += end
		}
		if q.peek() != '\n' {
			q.sure(q.at == len(q.text) || before == q.began)
			return
		}
		q.newline()
	}
}

func (q *quick) newline() {
	q.at++
	q.line, q.began = q.line+1, q.at
}

// dash reports whether an item of a block list comes next.
func (q *quick) dash() bool {
	return q.peek() == '-' && (q.ahead(1) == ' ' || q.ahead(1) == '\n')
}

// block reads a value that stands right of a column, to the beginning of the next
// content.
func (q *quick) block(beyond int) *node {
	q.sure(q.column() > beyond)
	q.depth++
	q.sure(q.depth <= quickDepth)
	defer func() { q.depth-- }()
	if q.dash() {
		return q.blockList()
	}
	if c := q.peek(); c != '{' && c != '[' {
		if end := q.key(); end > 0 {
			return q.blockObject(end)
		}
	}
	return q.inline(beyond)
}

// inline reads a flow value or a text of one line, and goes on to the next line, which
// must not continue it.
func (q *quick) inline(beyond int) *node {
	var n *node
	if c := q.peek(); c == '{' || c == '[' {
		n = q.flow(beyond)
	} else {
		n = q.scalar(false)
	}
	line := q.line
	q.nextLine()
	q.sure(q.at == len(q.text) || q.line > line && q.column() <= beyond)
	return n
}

func (q *quick) blockList() *node {
	column := q.column()
	n := q.makeList(q.at)
	for q.at < len(q.text) && q.column() == column && q.dash() {
		q.at++
		line := q.line
		q.nextOrBlanks()
		q.sure(q.at < len(q.text) && (q.line == line || q.column() > column))
		n.inside.items = append(n.inside.items, q.block(column))
	}
	q.sure(q.at == len(q.text) || q.column() < column || q.column() == column && !q.dash())
	return n
}

// nextOrBlanks goes to what comes next in this line, or else in the next one.
func (q *quick) nextOrBlanks() {
	q.blanks()
	if c := q.peek(); c == '\n' || c == '#' || c == 0 {
		if c == '#' {
			q.at-- // to the blank before it
		}
		q.nextLine()
	}
}

// key returns how long the name is that an object begins with here, 0 for no object.
func (q *quick) key() int {
	end := 0
	if c := q.peek(); c == '"' || c == '\'' {
		if end = q.quotedEnd(); end == 0 {
			return 0
		}
	} else {
		for c := q.ahead(end); isNamePart(c) || end > 0 && isDigit(c); c = q.ahead(end) {
			end++
		}
	}
	if after := q.ahead(end + 1); end == 0 || q.ahead(end) != ':' || after != ' ' && after != '\n' {
		return 0
	}
	return end
}

// isNamePart reports whether a byte may stand in a plain name.
func isNamePart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

// name reads a name of so many bytes and the colon behind it.
func (q *quick) name(end int) (name string, pos Position) {
	pos = q.pos(q.at)
	name = q.text[q.at : q.at+end]
	if name[0] == '"' || name[0] == '\'' {
		name = name[1 : len(name)-1]
	}
	known, ok := q.names[name]
	if !ok {
		q.charge(fieldCost + len(name))
		known = strings.Clone(name)
		q.names[known] = known
	}
	q.at += end + 1
	return known, pos
}

func (q *quick) blockObject(end int) *node {
	column := q.column()
	n := q.makeObject(q.at)
	for {
		q.charge(fieldCost)
		name, pos := q.name(end)
		line := q.line
		q.nextOrBlanks()
		q.sure(q.at < len(q.text))
		beyond := column
		if q.line > line && q.column() == column && q.dash() {
			beyond = column - 1 // items may stand beneath the name
		}
		var value *node
		if q.line == line {
			q.sure(!q.dash())
			value = q.inline(column) // a further name in this line is none of an object
		} else {
			value = q.block(beyond)
		}
		n.inside.fields = append(n.inside.fields, field{name: name, pos: placeOf(pos), value: value})
		q.sure(len(n.inside.fields) <= quickFields)
		if q.at == len(q.text) || q.column() < column {
			return n
		}
		end = q.key()
		q.sure(q.column() == column && end > 0)
	}
}

// flow reads a list or object in brackets. Its further lines stand right of a column.
func (q *quick) flow(beyond int) *node {
	q.depth++
	q.sure(q.depth <= quickDepth)
	defer func() { q.depth-- }()
	list := q.peek() == '['
	made, last := q.makeObject, byte('}')
	if list {
		made, last = q.makeList, ']'
	}
	n := made(q.at)
	q.at++
	q.flowBlanks(beyond)
	for q.peek() != last {
		if list {
			n.inside.items = append(n.inside.items, q.flowItem(beyond))
		} else {
			n.inside.fields = append(n.inside.fields, q.flowField(beyond))
			q.sure(len(n.inside.fields) <= quickFields)
		}
		q.flowBlanks(beyond)
		if q.peek() == ',' {
			q.at++
			q.flowBlanks(beyond)
			q.sure(q.peek() != last)
			continue
		}
		q.sure(q.peek() == last)
	}
	q.at++
	return n
}

func (q *quick) flowField(beyond int) field {
	q.charge(fieldCost)
	end, quoted := 0, q.peek() == '"' || q.peek() == '\''
	if quoted {
		end = q.quotedEnd()
	} else {
		for c := q.ahead(end); isNamePart(c) || end > 0 && isDigit(c); c = q.ahead(end) {
			end++
		}
	}
	q.sure(end > 0 && q.ahead(end) == ':')
	q.sure(quoted || q.ahead(end+1) == ' ' || q.ahead(end+1) == '\n')
	name, pos := q.name(end)
	q.flowBlanks(beyond)
	return field{name: name, pos: placeOf(pos), value: q.flowValue(beyond)}
}

func (q *quick) flowValue(beyond int) *node {
	if c := q.peek(); c == '{' || c == '[' {
		return q.flow(beyond)
	}
	return q.scalar(true)
}

// flowItem reads an item of a list in brackets: with a colon in it a plain text is
// an object to the parser.
func (q *quick) flowItem(beyond int) *node {
	n := q.flowValue(beyond)
	q.sure(n.quoted || n.kind == listKind || n.kind == objectKind || strings.IndexByte(n.text, ':') < 0)
	return n
}

// flowBlanks goes over blanks and line breaks within brackets.
func (q *quick) flowBlanks(beyond int) {
	for {
		q.blanks()
		if q.peek() != '\n' {
			return
		}
		q.newline()
		q.blanks()
		q.sure(q.peek() == '\n' || q.column() > beyond)
	}
}

// quotedEnd is how long a quoted text is with its quotes, if it has no escapes and ends in
// its line, else 0.
func (q *quick) quotedEnd() int {
	quote := q.peek()
	for i := 1; ; i++ {
		switch c := q.ahead(i); {
		case c == quote:
			if q.ahead(i+1) == quote {
				return 0
			}
			return i + 1
		case c < ' ' || c == '\\' || c == 0x7f:
			return 0
		}
	}
}

// scalar reads a text, number or the like that ends in its line.
func (q *quick) scalar(inFlow bool) *node {
	if c := q.peek(); c == '"' || c == '\'' {
		end := q.quotedEnd()
		q.sure(end > 0)
		n := q.make(textKind, q.at)
		q.charge(end)
		n.text, n.quoted = strings.Clone(q.text[q.at+1:q.at+end-1]), true
		q.at += end
		return n
	}
	end := q.plainEnd(inFlow)
	plain := q.text[q.at : q.at+end]
	n := q.make(kindOfPlain(plain), q.at)
	q.sure(n.kind != nullKind)
	q.charge(end)
	n.text = strings.Clone(plain)
	q.at += end
	return n
}

// plainEnd is how long the plain text is that comes next. It holds nothing that could mean
// something else.
func (q *quick) plainEnd(inFlow bool) int {
	first := q.peek()
	q.sure(isNamePart(first) || isDigit(first) || first == '/' || (first == '-' || first == '.') && isDigit(q.ahead(1)))
	end, words := 0, 0
	for {
		c := q.ahead(end)
		switch {
		case isWordPart(c):
			end++
			words = end
			continue
		case c == ' ':
			end++
			continue
		case c == 0 && q.at+end == len(q.text), c == '\n', inFlow && (c == ',' || c == ']' || c == '}'), c == '#' && !inFlow && end > words:
		default:
			q.at += end
			q.sure(false)
		}
		break
	}
	for i := range words { // a colon that ends a word makes it a name
		q.sure(q.ahead(i) != ':' || isWordPart(q.ahead(i+1)))
	}
	return words
}

func isWordPart(c byte) bool {
	return isNamePart(c) || isDigit(c) || strings.IndexByte("./:-+=@~()", c) >= 0 && c != 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// kindOfPlain is what a plain text means; the parser's own rules say so where it could be
// anything but a text.
func kindOfPlain(s string) kind {
	c := s[0]
	if word := isNamePart(c) && strings.IndexByte("nNtTfFyYoO", c) < 0; word {
		return textKind
	}
	switch t := token.New(s, s, &token.Position{}); t.Type {
	case token.StringType:
		return textKind
	case token.BoolType:
		return boolKind
	case token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.FloatType:
		return numberKind
	case token.InfinityType, token.NanType:
		return oddKind
	default:
		return nullKind
	}
}
