package strict_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

// TestRefusedTextsCostLittle asserts that a text in which each few characters are an error, or
// a feature of YAML that is not supported, costs no more than its scan up to the first of them.
func TestRefusedTextsCostLittle(t *testing.T) {
	const size, most = 2 << 20, 64 // most bytes for each of the text
	for _, part := range []string{"@", "@ ", "` ", "`a` ", "% ", "%%", "%A ", "\t@", "!{", "!a{ ", "\"\\x", "a\t: ", "<< : ", "| a", "> %"} {
		for _, head := range []string{"", "a: b\n", "[a, "} {
			text := head + strings.Repeat(part, size/len(part))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d := strict.Parse("f", []byte(text))
			runtime.ReadMemStats(&after)
			if _, err := d.Result(); err == nil {
				t.Errorf("%q and many %q: no error", head, part)
			}
			if cost := (after.TotalAlloc - before.TotalAlloc) / size; cost > most {
				t.Errorf("%q and many %q: %d bytes for each byte of text, want at most %d", head, part, cost, most)
			}
		}
	}
}
