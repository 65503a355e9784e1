package strict

import (
	"fmt"
	"strings"
)

// MaxMarks is how many lines, brackets, separators and quoted texts a document
// may have that does not keep to common forms of YAML. The parser takes some 900 bytes of
// memory for each.
const MaxMarks = 1 << 18

// tooDense tells that a text has more than [MaxMarks], and of the place where it does not
// keep to common forms; nil where it has not. It is looked at before the parser sees
// the text.
func tooDense(text string, uncommon Position) *Problem {
	marks := 0
	for i := range len(text) {
		if !isMark(text, i) {
			continue
		}
		if marks++; marks > MaxMarks {
			return problemAt(uncommon,
				fmt.Sprintf("an error, or a rare form of YAML, in a document of more than %d lines, brackets, separators and quoted texts", MaxMarks),
				"large documents are read with names and texts of one line only, without tabs, escapes in quotes, empty values, comments in brackets, | and >")
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
