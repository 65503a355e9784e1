package config_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/isobar-xds/isobar/internal/config"
)

// TestAsJSON: YAML says the same in JSON, and in the same lines.
func TestAsJSON(t *testing.T) {
	const text = `# a file
name: "é: \"quoted\""   # a comment
plain: 1.5e3
"on": True
nothing: null
list:
  - {a: 1, b: [x, "2"]}
  - - deep

  - |
    two
    lines
bytes: {0x10: 0x10}
`
	got, err := config.AsJSON("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(got, &value); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	want := map[string]any{
		"name": `é: "quoted"`, "plain": 1500.0, "on": true, "nothing": nil,
		"list":  []any{map[string]any{"a": 1.0, "b": []any{"x", "2"}}, []any{"deep"}, "two\nlines\n"},
		"bytes": map[string]any{"0x10": "0x10"},
	}
	if !reflect.DeepEqual(value, want) {
		t.Errorf("%v\nwant %v", value, want)
	}
	lines, source := strings.Split(string(got), "\n"), strings.Split(text, "\n")
	for _, word := range []string{`"name"`, `"plain"`, `"deep"`, `"bytes"`, `"x"`} {
		at := func(lines []string, word string) int {
			for i, l := range lines {
				if strings.Contains(l, word) {
					return i
				}
			}
			return -1
		}
		if g, w := at(lines, word), at(source, strings.Trim(word, `"`)); g != w {
			t.Errorf("%s is in line %d, want %d:\n%s", word, g+1, w+1, got)
		}
	}
}

// TestAsJSONLeavesJSON: places in it are the file's; and what is neither is
// refused with its place.
func TestAsJSONLeavesJSON(t *testing.T) {
	for _, text := range []string{" {\"a\": [}", "{}"} {
		if got, err := config.AsJSON("f", []byte(text)); err != nil || string(got) != text {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":               "f:1:1: the document is empty",
		"a: &x 1\nb: *x": "f:1:4: ",
		"a: [":           "f:1:",
		"{" + strings.Repeat(" ", config.MaxBytes): "too many; keep it within",
	} {
		_, err := config.AsJSON("f", []byte(text))
		var bad *config.Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// FuzzAsJSON: what is taken is JSON, and says what another reading of the YAML
// says.
func FuzzAsJSON(f *testing.F) {
	for _, text := range []string{"a: 1\nb: [x, {c: ~}]", "- 1\n- 'x'\n", "a: .5\nb: 1_000\nc: 0o7\nd: +1\ne: yes\nf: \"\\u0001\"", "é: |\n  x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := config.AsJSON("f", text)
		if err != nil || strings.HasPrefix(strings.TrimLeft(string(text), " \t\r\n"), "{") {
			return
		}
		var value any
		if err := json.Unmarshal(got, &value); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		var other any
		if err := yaml.Unmarshal(text, &other); err == nil {
			sameShape(t, value, other)
		}
	})
}

// sameShape compares lists and lengths; scalars have their own notations.
func sameShape(t *testing.T, a, b any) {
	t.Helper()
	x, isList := a.([]any)
	y, wasList := b.([]any)
	if isList != wasList || len(x) != len(y) {
		t.Fatalf("%v and %v", a, b)
	}
	for i := range x {
		sameShape(t, x[i], y[i])
	}
}
