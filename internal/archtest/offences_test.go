//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"strings"
	"testing"
)

// TestOffencesAreSeen seeds one offence after the other: a rule that finds
// nothing would look like a clean house.
func TestOffencesAreSeen(t *testing.T) {
	tests := []struct {
		name, src, want string
	}{
		{"clock", `import "time"; func f() time.Time { return time.Now() }`, "time.Now"},
		{"clock as a value", `import "time"; var clock = time.Now`, "time.Now"},
		{"age", `import "time"; func f(t time.Time) time.Duration { return time.Since(t) }`, "time.Since"},
		{"until", `import "time"; func f(t time.Time) time.Duration { return time.Until(t) }`, "time.Until"},
		{"sleep", `import "time"; func f() { time.Sleep(1) }`, "time.Sleep"},
		{"timer", `import "time"; func f() { time.NewTimer(1) }`, "time.NewTimer"},
		{"after", `import "time"; func f() { <-time.After(1) }`, "time.After"},
		{"renamed import", `import x "time"; func f() { x.Sleep(1) }`, "time.Sleep"},
		{"time zone", `import "time"; func f(t time.Time) time.Time { return t.Local() }`, "time zone"},
		{"goroutine", `func f() { go f() }`, "goroutine"},
		{"channel", `func f(c chan int) {}`, "channel"},
		{"made channel", `func f() { _ = make(chan struct{}) }`, "channel"},
		{"select", `func f() { select {} }`, "select"},
		{"mutex", `import "sync"; var mu sync.Mutex`, "import sync"},
		{"atomic", `import "sync/atomic"; var n atomic.Int64`, "import sync/atomic"},
		{"context", `import "context"; func f(context.Context) {}`, "import context"},
		{"logger", `import "log/slog"; func f() { slog.Info("x") }`, "import log/slog"},
		{"old logger", `import "log"; func f() { log.Print("x") }`, "import log"},
		{"files", `import "os"; func f() { os.Getpid() }`, "import os"},
		{"old rand", `import "math/rand"; func f() int { return rand.Int() }`, "import math/rand"},
		{"global rand", `import "math/rand/v2"; func f() int { return rand.Int() }`, "global source"},
		{"shuffle", `import "math/rand/v2"; func f() { rand.Shuffle(1, func(int, int) {}) }`, "global source"},
		{"stdout", `import "fmt"; func f() { fmt.Println() }`, "fmt.Println"},
		{"map order", `func f(m map[string]int) (s string) { for k := range m { s += k }; return s }`, "range over a map"},
		{"named map", `type M map[string]int; func f(m M) (s string) { for k := range m { s += k }; return s }`, "range over a map"},
		{"generic map", `func f[M ~map[string]int](m M) (s string) { for k := range m { s += k }; return s }`, "range over a map"},
		{"collected, not sorted", `func f(m map[string]int) (s []string) { for k := range m { s = append(s, k) }; return s }`, "range over a map"},
		{"other slice sorted", `import "slices"
			func f(m map[string]int, o []string) (s []string) { for k := range m { s = append(s, k) }; slices.Sort(o); return s }`, "range over a map"},
		{"annotation without reason", "func f(m map[string]int) (s string) {\n//isobar:sorted \nfor k := range m { s += k }; return s }", "range over a map"},
		{"keys", `import ("maps"; "slices"); func f(m map[string]int) []string { return slices.Collect(maps.Keys(m)) }`, "maps.Keys"},
		{"values", `import "maps"; func f(m map[string]int) (n int) { for x := range maps.Values(m) { n -= x }; return n }`, "maps.Values"},
		{"state", `var n int; func f() { n++ }`, "keeps no state"},
		{"cache", `var m = map[int]int{}; func f() { m[1] = 2 }`, "keeps no state"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := offencesOf(t, tt.src)
			for _, o := range found {
				if strings.Contains(o.text, tt.want) {
					return
				}
			}
			t.Errorf("want an offence with %q, got %v", tt.want, found)
		})
	}
}

func TestCleanCodePasses(t *testing.T) {
	tests := []struct{ name, src string }{
		{"arithmetic on times", `import "time"; func f(t time.Time) time.Time { return t.Add(time.Second).UTC() }`},
		{"seeded rand", `import "math/rand/v2"; func f(s uint64) int { return rand.New(rand.NewPCG(s, 0)).IntN(3) }`},
		{"sorted keys", `import ("maps"; "slices"); func f(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }`},
		{"collected and sorted", `import "slices"
			func f(m map[string]int) (s []string) { for k := range m { s = append(s, k) }; slices.Sort(s); return s }`},
		{"annotated above", "func f(m map[string]int) (n int) {\n//isobar:sorted a sum of integers has no order\nfor _, x := range m { n += x }; return n }"},
		{"annotated beside", "func f(m map[string]int) {\nfor k := range m { //isobar:sorted deletes only\ndelete(m, k) } }"},
		{"slices and integers", `func f(s []int) (n int) { for _, x := range s { n += x }; for i := range 3 { n += i }; return n }`},
		{"a local of the same name", `var n int; func f() int { n := 1; n++; return n }`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if found := offencesOf(t, tt.src); len(found) > 0 {
				t.Errorf("got %v", found)
			}
		})
	}
}

var stdChecker = newChecker("")

func offencesOf(t *testing.T, src string) []offence {
	t.Helper()
	f, err := parser.ParseFile(stdChecker.fset, "p.go", "package p\n"+src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p, err := stdChecker.check("p", []*ast.File{f})
	if err != nil {
		t.Fatal(err)
	}
	return p.offences()
}
