package strict_test

import (
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

// TestEmptyLinesOfATextAreBounded: a megabyte of empty lines in a text of several
// lines would keep the parser busy for hours; it is refused, with its place.
func TestEmptyLinesOfATextAreBounded(t *testing.T) {
	for _, head := range []string{"a: >\n", "a: |\n  x\n", "- |+ # why\n", ">9-\n", "x: [|\n", "a: > # see | c\n\n d\n", "e: 1 >2 |\n", "a: |\r"} {
		for _, empty := range []string{"\n", "\r", "\r\n", "  \n", "\n\t", "\n   "} {
			d := strict.Parse("x.yaml", []byte(head+strings.Repeat(empty, 1<<20)))
			_, err := d.Result()
			if err == nil || !strings.Contains(err.Error(), "more than 16 empty lines in a row") {
				t.Errorf("%q, %q: %.200v", head, empty, err)
			}
		}
	}
	d := strict.Parse("x.yaml", []byte("a: |\n  x\n"+strings.Repeat("\n", 40)))
	if _, err := d.Result(); err == nil || !strings.HasPrefix(err.Error(), "x.yaml:19:1: ") {
		t.Errorf("the place: %v", err)
	}
}

// TestEmptyLinesElsewhere: where no text of several lines is, any number of empty
// lines may stand, and a text may have some.
func TestEmptyLinesElsewhere(t *testing.T) {
	for text, want := range map[string]string{
		"a: b\n" + strings.Repeat("\n", 1000) + "b: |\n  x\n\n\n  y\n":                      "x\n\n\ny\n",
		"a: {x: 1}\r\n" + strings.Repeat("\r\n", 1000) + "b: a > b":                         "a > b",
		"a: 1 # x | y\n" + strings.Repeat("\n", 1000) + "b: " + `"x` + `\n\n` + `y"` + "\n": "x\n\ny",
	} {
		d := strict.Parse("x.yaml", []byte(text))
		root, ok := d.Root()
		if !ok {
			_, err := d.Result()
			t.Errorf("%v", err)
			continue
		}
		entries, _ := root.Entries()
		if got, _ := entries[1].Value.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestOtherCodings asserts that files in UTF-16 and compressed files are refused in words that
// say so, whatever their size is.
func TestOtherCodings(t *testing.T) {
	for head, want := range map[string]string{
		"\xff\xfea\x00:\x00":   "it looks like UTF-16",
		"\xfe\xff\x00a\x00:":   "it looks like UTF-16",
		"a\x00:\x00 \x00":      "it looks like UTF-16",
		"\x00a\x00:\x00 ":      "it looks like UTF-16",
		"\x00\x00\x00a":        "it looks like UTF-16",
		"\x1f\x8b\x08\x00\x00": "it is compressed with gzip; decompress it",
	} {
		for _, times := range []int{1, 1 << 20} {
			d := strict.Parse("x.yaml", []byte(head+strings.Repeat("a\x00", times)))
			if _, err := d.Result(); err == nil || !strings.HasPrefix(err.Error(), "x.yaml:1:1: not UTF-8 text: "+want) {
				t.Errorf("%q: %v", head, err)
			}
		}
	}
}
