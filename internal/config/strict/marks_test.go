package strict

import (
	"strings"
	"testing"
)

// TestAFullDocumentIsNotTooDense: who needs all the room there is for endpoints
// gets it, also as JSON and with addresses of IPv6. To parse it would take
// gigabytes; it is looked at as far as the limit.
func TestAFullDocumentIsNotTooDense(t *testing.T) {
	for name, endpoint := range map[string]string{
		"YAML":        "    - {address: 10.0.0.0:8000, max_rate: 100}\n",
		"YAML, block": "    - address: 10.0.0.0:8000\n      max_rate: 100\n",
		"IPv6":        "    - {address: \"[2001:db8:0:1:2:3:4:5]:8000\", max_rate: 100}\n",
		"JSON":        "     { \"address\": \"10.0.0.0:8000\",\n \"max_rate\": 100\n },\n",
	} {
		if p := tooDense(strings.Repeat(endpoint, MaxBytes/len(endpoint))); p != nil {
			t.Errorf("%s: %+v", name, *p)
		}
	}
}

// TestDenseTextsAreTold: what a parser would take gigabytes for is refused, with
// its place.
func TestDenseTextsAreTold(t *testing.T) {
	for _, part := range []string{"\n", "[],", "1,", "- ", "a: ", "'' ", `"" `, "{a},", "? ", "!a ", "&a ", "#\n", "- 1\n", `{"a":1},`} {
		p := tooDense(strings.Repeat(part, MaxMarks+1))
		if p == nil || p.Line*p.Column == 0 {
			t.Errorf("%q: %+v", part, p)
		}
	}
}
