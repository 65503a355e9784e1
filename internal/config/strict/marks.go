package strict

import (
	"fmt"
	"strings"
)

// MaxMarks is how many lines, brackets, separators and quoted texts a document
// may have. The parser takes some 500 bytes of memory for each, so that a text
// of nothing else would take 8 GB; 16 MiB of endpoints have fewer.
const MaxMarks = 4 << 20

// tooDense tells of the place where a text has more than [MaxMarks]; nil where
// it has not. It is looked at before the parser sees the text.
func tooDense(text string) *Problem {
	marks, line, began := 0, 1, 0
	for i := range len(text) {
		if isMark(text, i) {
			if marks++; marks > MaxMarks {
				return problemAt(Position{line, i - began + 1}, fmt.Sprintf("more than %d lines, brackets, separators and quoted texts", MaxMarks),
					"write fewer services into one document; the admin API takes others")
			}
		}
		if text[i] == '\n' {
			line, began = line+1, i+1
		}
	}
	return nil
}

// isMark tells whether a byte is one after which a parser begins something new.
// Dashes and colons within words, such as those of names and addresses, are not.
func isMark(text string, i int) bool {
	switch c := text[i]; c {
	case '\n', '{', '}', '[', ']', ',', '#', '?', '&', '*', '!':
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
