package strict

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var endBlanks = regexp.MustCompile(`(?m) +$`)

// sameAsParser fails where a text is read in another way than by the parser. It
// reports whether the text keeps to common forms.
func sameAsParser(t interface {
	Fatalf(format string, args ...any)
}, text string) bool {
	got, _, _ := readQuickly(text, 1<<30)
	if got == nil {
		return false
	}
	// With blanks at the end of its line the parser gives a plain text a wrong column.
	want, p := parse(endBlanks.ReplaceAllString(text, ""))
	if p != nil {
		t.Fatalf("the parser refuses what was read: %+v\n%s", *p, text)
	}
	if a, b := show(got), show(want); a != b {
		t.Fatalf("read:\n%s\nthe parser has:\n%s\nof:\n%s", a, b, text)
	}
	return true
}

// show writes a tree with all that it holds.
func show(n *node) string {
	var b strings.Builder
	var walk func(n *node, indent string)
	walk = func(n *node, indent string) {
		fmt.Fprintf(&b, "%v %v %q quoted=%v\n", n.pos, n.kind, n.text, n.quoted)
		for _, item := range n.items() {
			fmt.Fprintf(&b, "%s- ", indent)
			walk(item, indent+"  ")
		}
		for _, f := range n.fields() {
			fmt.Fprintf(&b, "%s%q at %v: ", indent, f.name, f.pos)
			walk(f.value, indent+"  ")
		}
	}
	walk(n, "")
	return b.String()
}

// TestQuickReadsFilesAsTheParserDoes: all configurations of the repository; what is
// meant to be served keeps to common forms.
func TestQuickReadsFilesAsTheParserDoes(t *testing.T) {
	for _, pattern := range []string{
		"../testdata/*/*.yml", "../testdata/*/*.yaml", "../testdata/*/*.json", "../../../examples/*/*.yaml", "../../../examples/*.yaml", "../../../deploy/*/*.y*ml",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !sameAsParser(t, string(data)) && strings.Contains(file, "good") && strings.Contains(file, "/config/") {
				t.Logf("%s is left to the parser", file)
			}
		}
	}
}

// TestQuickReadsAsTheParserDoes: texts made of what YAML is made of, well formed
// or not.
func TestQuickReadsAsTheParserDoes(t *testing.T) {
	parts := rapid.SampledFrom([]string{
		"a", "name", "true", "null", "no", "10.0.0.1:80", "-1", "1e3", "0x1f", ".5", ".inf", "~", "1_000", "us-east/a", "5s", "2024-01-01", "12:30", "=", "<<",
		`"q"`, `'q'`, `"é"`, `""`, `"a: b"`, `"x" y`,
		": ", ":", "- ", "-", ", ", ",", "[", "]", "{", "}", " ", "  ", "\n", "\n  ", "\n    ", "\n- ", "\n  - ", " # why", "#", "---\n", "| ", "&a ", "é",
	})
	common := 0
	rapid.Check(t, func(t *rapid.T) {
		if sameAsParser(t, strings.Join(rapid.SliceOfN(parts, 1, 12).Draw(t, "parts"), "")) {
			common++
		}
	})
	t.Logf("%d were read", common)
}

// TestQuickReadsTreesAsTheParserDoes: well-formed documents in mixed styles.
func TestQuickReadsTreesAsTheParserDoes(t *testing.T) {
	scalars := []string{"a", "us-east/a", "10.0.0.1:80", "12", "-3", "0.5", "true", "False", "two words", `"q"`, `'x: y'`, `"ü, [1]"`, "5s", "y", "no", "1e3", "0b1", "0o7", "1_0"}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		end := func() string { return []string{"\n", " # c\n", "\n\n", "\n# é\n", "  \n"}[pick(5)] }
		scalar := func() string { return scalars[pick(len(scalars))] }
		var flow func(depth int) string
		flow = func(depth int) string {
			n := pick(3)
			var out []string
			list := pick(2) == 0
			for range n {
				v := scalar()
				if depth > 0 && pick(3) == 0 {
					v = flow(depth - 1)
				}
				if !list {
					v = []string{"k: ", `"k": `, `"k":`, "max_rate: "}[pick(4)] + v
				}
				out = append(out, v)
			}
			text := strings.Join(out, []string{", ", ",", " , "}[pick(3)])
			if list {
				return "[" + text + "]"
			}
			return "{" + text + "}"
		}
		var block func(indent string, depth int)
		block = func(indent string, depth int) {
			list := pick(2) == 0
			for i := range 1 + pick(3) {
				head := "- "
				if !list {
					head = []string{"k", "name", `"q"`}[pick(3)] + ":"
				}
				b.WriteString(indent + head)
				switch c := pick(4); {
				case c == 0 && depth > 0:
					b.WriteString(end())
					block(indent+strings.Repeat(" ", 1+pick(3)), depth-1)
				case c == 1 && list && i == 0 && depth > 0:
					b.WriteString("k: " + scalar() + end())
					b.WriteString(indent + "  z: " + flow(1) + end())
				case c == 2:
					b.WriteString(" " + flow(2) + end())
				default:
					b.WriteString(" " + scalar() + end())
				}
			}
		}
		block("", 3)
		sameAsParser(t, b.String())
	})
}

func FuzzQuick(f *testing.F) {
	for _, s := range []string{"a: b\n", "- a: 1\n  b: [x, {y: z}]\n", `{"a":[1,2,{"b":null}]}`, "a:\n- b\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if text, p := readable([]byte(s)); p == nil {
			sameAsParser(t, text)
		}
	})
}

// TestCostOfDocuments: what is made of a text is charged before, so that nothing takes much
// more memory than what it allows, whether it is refused or not.
func TestCostOfDocuments(t *testing.T) {
	const size = 1 << 20
	for name, text := range map[string]string{
		"items":         "[" + strings.Repeat("a,", size/2),
		"closed items":  "[" + strings.Repeat("a,", size/2) + "a]",
		"block items":   strings.Repeat("- a\n", size/4),
		"empty lists":   "[" + strings.Repeat("[],", size/3) + "[]]",
		"empty objects": "[" + strings.Repeat("{},", size/3) + "{}]",
		"fields":        "[" + strings.Repeat("{a: b},", size/7) + "{}]",
		"numbers":       "[" + strings.Repeat("1,", size/2) + "1]",
		"a long number": "a: " + strings.Repeat("1", size),
		"a long name":   strings.Repeat("a", size) + ": 1",
		"long names":    "[" + strings.Repeat("{"+strings.Repeat("a", 1000)+": b},", size/1006) + "{}]",
		"other names":   strings.Join(distinct(size/16), ""),
		"deep":          strings.Repeat("[", size),
		"aliases":       "a: &a [x]\nb: [" + strings.Repeat("*a,", size/3) + "*a]",
		"quotes":        "[" + strings.Repeat(`"",`, size/3) + `""]`,
		"escapes":       "[" + strings.Repeat(`"\u0041",`, size/9) + `""]`,
		"tabs":          "[" + strings.Repeat("\ta,\n", size/5) + `""]`,
		"comments":      strings.Repeat("# c\n", size/4) + "a: b\n",
		"empty lines":   strings.Repeat("\n", size) + "a: b\n",
	} {
		t.Run(name, func(t *testing.T) {
			most := uint64(48 * size)
			if name == "escapes" || name == "other names" { // for the parser
				most = 240 << 20
			}
			if peak := peakOf(func() { Parse("x.yaml", []byte(text)) }); peak > most {
				t.Errorf("%d MiB for a text of %d KiB", peak>>20, len(text)>>10)
			}
		})
	}
}

func distinct(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strings.Repeat(string(rune('a'+i%26)), 1+i%13) + "_: 1\n"
	}
	return out
}

// peakOf is how much the heap grows while f runs, in bytes.
func peakOf(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before, peak := heap(), uint64(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		peak = max(peak, heap())
		select {
		case <-done:
			return peak - min(peak, before)
		case <-ticker.C:
		}
	}
}
