//go:build !race

package main

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestListIsTrue: the old text of every bug is in its file exactly once, the
// package still type-checks with the new one, and so the list can't rot while
// the code moves on.
func TestListIsTrue(t *testing.T) {
	all, err := readLists(filepath.Join(root, "test", "mutants", "bugs"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 45 {
		t.Errorf("%d bugs, want at least 45", len(all))
	}
	imports := newImports(t)
	for i := range all {
		m := &all[i]
		data, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if err := imports.check(path.Dir(m.File), path.Base(m.File), data); err != nil {
			t.Errorf("%s: does not compile: %v", m.Name, err)
		}
		for _, x := range m.Tests {
			what := append(strings.Fields(x), "")
			switch tests, err := testsIn(filepath.Join(root, what[0])); {
			case err != nil:
				t.Fatal(err)
			case len(tests) == 0:
				t.Errorf("%s: no tests in %s", m.Name, what[0])
			case !matchAny(t, what[1], tests):
				t.Errorf("%s: no test in %s is called like %s", m.Name, what[0], what[1])
			}
		}
	}
}

// testName finds what `go test -run` can choose in a file.
var testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// testsIn lists the tests of a directory.
func testsIn(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range testName.FindAllSubmatch(data, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names, nil
}

// matchAny reports whether a pattern of `go test -run` chooses a test.
func matchAny(t *testing.T, pattern string, tests []string) bool {
	t.Helper()
	top, _, _ := strings.Cut(pattern, "/")
	re, err := regexp.Compile(top)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(tests, re.MatchString)
}

// imports type-checks packages, with what the compiler says of those that they
// import.
type imports struct {
	files  *token.FileSet
	others types.Importer
}

func newImports(t *testing.T) *imports {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}", "./internal/...", "./cmd/...", ".")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if pkg, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			at[pkg] = file
		}
	}
	files := token.NewFileSet()
	return &imports{files: files, others: importer.ForCompiler(files, "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(at[pkg]) })}
}

// check type-checks the package in a directory, with other text for one file.
func (x *imports) check(dir, changed string, text []byte) error {
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go"))
	if err != nil {
		return err
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		// A file for another system is no part of the package here.
		if here, err := build.Default.MatchFile(filepath.Split(name)); err != nil || !here {
			if err != nil {
				return err
			}
			continue
		}
		var source any
		if filepath.Base(name) == changed {
			source = text
		}
		f, err := parser.ParseFile(x.files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
	}
	_, err = (&types.Config{Importer: x.others}).Check(path.Join("github.com/isobar-xds/isobar", dir), x.files, parsed, nil)
	return err
}
