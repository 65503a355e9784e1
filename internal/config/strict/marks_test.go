package strict

import (
	"strings"
	"testing"
)

// TestFullDocuments: who needs all the room there is for endpoints gets it, also
// as JSON and with addresses of IPv6.
func TestFullDocuments(t *testing.T) {
	for name, x := range map[string]struct{ head, endpoint, tail string }{
		"YAML":        {"e:\n", "    - {address: 10.0.0.0:8000, max_rate: 100}\n", ""},
		"YAML, block": {"e:\n", "    - address: 10.0.0.0:8000\n      max_rate: 100\n", ""},
		"short":       {"e:\n", "    - 10.0.0.0:8000\n", ""},
		"IPv6":        {"e:\n", "    - {address: \"[2001:db8:0:1:2:3:4:5]:8000\", max_rate: 100}\n", ""},
		"JSON":        {"[\n", "     { \"address\": \"10.0.0.0:8000\",\n \"max_rate\": 100\n },\n", "1]"},
		"dense JSON":  {"[", `{"address":"10.0.0.0:80","max_rate":1},`, "1]"},
	} {
		const size = 2 << 20 // all is in proportion
		text := x.head + strings.Repeat(x.endpoint, size/len(x.endpoint)) + x.tail
		if root, at, costly := readQuickly(text, leastCost+costOfByte*len(text)); root == nil {
			t.Errorf("%s: stopped at %+v, costly %v", name, at, costly)
		}
	}
}

// TestDenseTextsAreTold: what a parser would take gigabytes for is refused, with
// the place that needs the parser.
func TestDenseTextsAreTold(t *testing.T) {
	for _, part := range []string{"\n", "[],", "1,", "- ", "a: ", "'' ", `"" `, "{a},", "? ", "!a ", "&a ", "#\n", "% ", "- 1\n", `{"a":1},`} {
		p := tooDense(strings.Repeat(part, MaxMarks+1), Position{2, 3})
		if p == nil || p.Line*p.Column != 6 {
			t.Errorf("%q: %+v", part, p)
		}
	}
}

// TestLongTextsAreTold asserts that what a parser would keep several times is refused, and that
// long documents of ordinary texts are not.
func TestLongTextsAreTold(t *testing.T) {
	for part, refused := range map[string]bool{"\t": true, " ": true, "x": true, `\n`: true, "é ": true, "| ": true, strings.Repeat("x", MaxUnmarked/2) + ",": false} {
		p := tooDense("a: \""+strings.Repeat(part, 3*MaxUnmarked/len(part)), Position{2, 3})
		if (p != nil) != refused || refused && p.Line*p.Column != 6 {
			t.Errorf("%.10q: %+v, want it refused: %v", part, p, refused)
		}
	}
}
