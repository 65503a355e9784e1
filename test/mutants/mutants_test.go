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
			if pkg := strings.Fields(x)[0]; !exists(t, filepath.Join(root, pkg, "*_test.go")) {
				t.Errorf("%s: no tests in %s", m.Name, pkg)
			}
		}
	}
}

func exists(t *testing.T, pattern string) bool {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
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
