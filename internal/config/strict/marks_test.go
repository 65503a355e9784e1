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

// TestLargeTextsAreTold asserts that a document that needs the parser is refused beyond
// MaxUncommon, with the place that needs it, and that others are not.
func TestLargeTextsAreTold(t *testing.T) {
	for _, part := range []string{"\t", " ", "é", "| ", strings.Repeat("x", 80) + "\n"} {
		text := "a: b\nc: \"" + strings.Repeat(part, MaxUncommon/len(part)+1)
		if root, p := nodesOf(text); root != nil || p == nil || p.Line != 2 || !strings.Contains(p.Text, "more than 4194304 bytes") {
			t.Errorf("%.10q: %+v", part, p)
		}
	}
	if root, p := nodesOf("a: " + strings.Repeat("b", MaxUncommon) + "\n"); root == nil {
		t.Errorf("a document of common form: %+v", p)
	}
}

// TestLargeTextsOfAllFieldNames asserts that digits in names of fields, and lines that end with
// CRLF, leave a document of common form as large as it may be.
func TestLargeTextsOfAllFieldNames(t *testing.T) {
	var b strings.Builder
	b.WriteString("n1_interval: 5s\nzones: {clients_2017: 1}\nendpoints:\n")
	for range MaxMarks {
		b.WriteString("  - {address: '10.0.0.1:80', x1: 2}\n")
	}
	for name, text := range map[string]string{"LF": b.String(), "CRLF": strings.ReplaceAll(b.String(), "\n", "\r\n")} {
		if _, ok := Parse("large.yaml", []byte(text)).Root(); !ok {
			t.Errorf("a document of %d bytes with ends of lines as %s is refused", len(text), name)
		}
	}
}
