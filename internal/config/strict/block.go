package strict

import (
	"fmt"
	"strings"
)

// MaxEmptyLines is how many empty lines in a row a document may have below a
// line that ends in | or >, as those do that open a text of several lines. The
// parser takes the empty ones at its end off one by one and copies the text each
// time, so that 16 KB of them would take it seconds, and 4 MiB days.
const MaxEmptyLines = 16

// tooEmpty tells of the place where there are more than [MaxEmptyLines] in a row;
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

// opensBlock tells whether there is a | or > in a line with nothing behind it
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
