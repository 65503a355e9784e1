package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// write makes the files of a txtar-like map in a new directory.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const aGoMod = "module example.com/sum\n\ngo 1.26\n"

const aSum = `package sum

func Sum(v []int) int {
	s := 0
	for _, x := range v {
		s += x
	}
	return s
}

func Mean(v []int) int { return Sum(v) / max(1, len(v)) }
`

const aTest = `package sum

import "testing"

func TestSum(t *testing.T) {
	if Sum([]int{2, 3}) != 5 {
		t.Fatal("wrong")
	}
}
`

func bug(name, old, replaced string) string {
	return "- name: " + name + "\n  bug: what it would do\n  file: sum.go\n  old: '" + old + "'\n  new: '" + replaced + "'\n  tests: [./.]\n"
}

// TestEachOutcome lets the tool loose on a module of its own.
func TestEachOutcome(t *testing.T) {
	files := map[string]string{"go.mod": aGoMod, "sum.go": aSum, "sum_test.go": aTest}
	noticed := bug("sum-last", "s += x", "s = x")
	for _, row := range []struct {
		name, bugs string
		args       []string
		out, err   string // expressions; no error for an empty one
	}{
		{"caught", noticed, nil, `1/1 sum-last: caught, by TestSum in \./\.(?s:.*)100\.0% of 1 bugs are caught`, ``},
		{"hangs", bug("sum-hangs", "s := 0", "s := 0; for len(v) == 2 { s++ }"), []string{"-timeout=2s"}, `sum-hangs: caught, by a time limit`, ``},
		{"survives", noticed + bug("sum-mean", "max(1, len(v))", "1"), nil, `sum-mean: survived, no test of \./\. fails`, `50\.0% of the bugs are caught, want 90%`},
		{"left out", noticed + bug("sum-mean", "max(1, len(v))", "1"), []string{"-run=last$"}, `100\.0% of 1 bugs`, ``},
		{"does not compile", bug("sum-broken", "s := 0", "s := nothing"), nil, `sum-broken: broken, it does not compile: .*undefined: nothing`, `1 bugs of the list don't fit`},
		{"is gone", bug("sum-gone", "s -= x", "s = x"), nil, `sum-gone: broken, old occurs 0 times in sum\.go`, `1 bugs of the list don't fit`},
		{"is no Go", bug("sum-bad", "s += x", "s +="), nil, `sum-bad: broken, with the bug it is no Go`, `1 bugs of the list don't fit`},
		{"no match", noticed, []string{"-run=other"}, ``, `no bug's name matches "other"`},
		{"no tests", strings.Replace(noticed, "[./.]", "[./. TestNothing]", 1), nil, ``, `\./\. TestNothing fails as the code is: no test matches`},
		{"bad name", strings.Replace(noticed, "sum-last", "last", 1), nil, ``, `the name "last" should be words`},
		{"twice", noticed + noticed, nil, ``, `two bugs are called sum-last`},
		{"unknown field", noticed + "  what: else\n", nil, ``, `unknown field "what"`},
		{"outside", strings.Replace(noticed, "file: sum.go", "file: ../sum.go", 1), nil, ``, `file should be a Go file of this module`},
	} {
		t.Run(row.name, func(t *testing.T) {
			files["bugs/sum.yaml"] = row.bugs
			dir := write(t, files)
			var out strings.Builder
			err := run(t.Context(), append([]string{"-root", dir, "-bugs", "bugs"}, row.args...), &out)
			if row.err == "" && err != nil || row.err != "" && (err == nil || !regexp.MustCompile(row.err).MatchString(err.Error())) {
				t.Errorf("error %v, want %q", err, row.err)
			}
			if !regexp.MustCompile(row.out).MatchString(out.String()) {
				t.Errorf("no %q in\n%s", row.out, &out)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "sum.go")); err != nil || string(data) != aSum {
				t.Errorf("the file changed: %v\n%s", err, data)
			}
		})
	}
}
