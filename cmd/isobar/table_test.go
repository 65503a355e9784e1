package main

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/isobar-xds/isobar"
)

// TestExplanationFitsTheTerminal: a narrow terminal gets fewer columns, never
// broken lines, and learns which it does not see.
func TestExplanationFitsTheTerminal(t *testing.T) {
	e, err := fixedPlan{}.Explain(fixedPlan{}.Current(), "checkout", isobar.MustLocality("us-east/b"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		width, most int
		head, left  string
	}{
		{0, 103, "LOCALITY   TIER  DIST   PRICE  COST  HEALTHY  CAP   LOAD  USED   CEIL  TARGET  SHARE  OBSERVED  LATENCY", ""},
		{120, 103, "LOCALITY   TIER  DIST   PRICE  COST  HEALTHY  CAP   LOAD  USED   CEIL  TARGET  SHARE  OBSERVED  LATENCY", ""},
		{100, 100, "LOCALITY   TIER  DIST   PRICE  COST  HEALTHY  CAP   LOAD  USED   CEIL  TARGET  SHARE  OBSERVED", "LATENCY"},
		{80, 80, "LOCALITY   TIER  DIST   PRICE  COST  CAP   LOAD  USED   TARGET  SHARE  OBSERVED", "LATENCY, CEIL, HEALTHY"},
		{1, 30, "LOCALITY   COST  LOAD  SHARE", "LATENCY, CEIL, HEALTHY, TIER, TARGET, PRICE, OBSERVED, DIST, CAP, USED"},
	}
	for _, tt := range tests {
		var b strings.Builder
		if err := writeExplanation(&b, &e, tt.width); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(b.String(), "as served\n\n")
		table, _, _ = strings.Cut(table, "us-east/b: full")
		for line := range strings.Lines(table) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > tt.most {
				t.Errorf("width %d: a line of %d: %q", tt.width, n, line)
			}
		}
		if head, _, _ := strings.Cut(table, "\n"); head != tt.head {
			t.Errorf("width %d: columns %q, want %q", tt.width, head, tt.head)
		}
		if told := strings.Contains(b.String(), "These columns do not fit: "+tt.left+"."); told != (tt.left != "") {
			t.Errorf("width %d: %s", tt.width, b.String())
		}
	}
}

// TestColumnsOfWideCharacters: a table is aligned on the terminal, where a character may
// take two cells, or none.
func TestColumnsOfWideCharacters(t *testing.T) {
	var b strings.Builder
	writeColumns(&b, []column{{head: "NODE", cells: []string{"\u5e97\u8217", "cafe\u0301", "shop"}}, {head: "X", cells: []string{"1", "2", "3"}}})
	if want := "NODE  X\n\u5e97\u8217  1\ncafe\u0301  2\nshop  3\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	for _, tt := range []struct {
		text, want string
		width      int
	}{{"\u5e97\u8217\u5e97\u8217", "\u5e97…", 4}, {"shops", "sho…", 4}, {"shop", "shop", 4}, {"\u5e97\u8217\u5e97\u8217", "\u5e97\u8217\u5e97\u8217", 0}} {
		if got := cut(tt.text, tt.width); got != tt.want {
			t.Errorf("%q cut to %d: %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

// TestProgressBarStaysInItsBounds: how much is done may be unknown, as of a trace
// that comes through a pipe or grows while it is read.
func TestProgressBarStaysInItsBounds(t *testing.T) {
	for _, tt := range []struct {
		done float64
		want string
	}{
		{0, "[" + strings.Repeat("-", 30) + "]   0%  x"},
		{0.5, "[" + strings.Repeat("#", 15) + strings.Repeat("-", 15) + "]  50%  x"},
		{1, "[" + strings.Repeat("#", 30) + "] 100%  x"},
		{4096, "[" + strings.Repeat("#", 30) + "] 100%  x"},
		{math.Inf(1), "[" + strings.Repeat("#", 30) + "] 100%  x"},
		{-0.1, "[" + strings.Repeat("-", 30) + "]   0%  x"},
		{math.NaN(), "[" + strings.Repeat("-", 30) + "]   0%  x"},
	} {
		var out strings.Builder
		bar := progressBar{w: &out, all: 1}
		bar.line("x", tt.done)
		if got := strings.TrimPrefix(out.String(), clearTheLine); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.done, got, tt.want)
		}
	}
}
