//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostFiles is the number of files that the methods of one type may stand in. A type with
// more has several subjects: split it by role or stage, not by file.
const mostFiles = 4

// receiver is a type with methods.
type receiver struct{ dir, name string }

// TestMethodsStandTogether: a reader finds what a type can do in a few files.
func TestMethodsStandTogether(t *testing.T) {
	root := filepath.Join("..", "..")
	files := map[receiver]map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(name)), nil, parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(f) {
			return err
		}
		for _, of := range receivers(f) {
			r := receiver{path.Dir(name), of}
			if files[r] == nil {
				files[r] = map[string]bool{}
			}
			files[r][path.Base(name)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 500 {
		t.Fatalf("only %d types with methods found", len(files))
	}
	for r, in := range files {
		if n := len(in); n > mostFiles {
			t.Errorf("the methods of %s in %s stand in %d files, more than %d: %s", r.name, r.dir, n, mostFiles,
				strings.Join(slices.Sorted(maps.Keys(in)), ", "))
		}
	}
}

// receivers returns the names of the types of which a file declares methods.
func receivers(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil {
			continue
		}
		of := fn.Recv.List[0].Type
		for of != nil {
			switch x := of.(type) {
			case *ast.StarExpr:
				of = x.X
			case *ast.IndexExpr: // of a generic type
				of = x.X
			case *ast.IndexListExpr:
				of = x.X
			case *ast.Ident:
				out = append(out, x.Name)
				of = nil
			default:
				of = nil
			}
		}
	}
	return out
}

// TestReceiversAreSeen: methods of values, pointers and generic types count, functions do not.
func TestReceiversAreSeen(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
		func (a A) f() {}
		func (b *B) f() {}
		func (c *C[T]) f() {}
		func (d D[K, V]) f() {}
		func g() {}`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if got := receivers(f); !slices.Equal(got, []string{"A", "B", "C", "D"}) {
		t.Errorf("methods of %v", got)
	}
}
