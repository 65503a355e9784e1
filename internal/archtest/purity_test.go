//go:build !race

package archtest

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/isobar-xds/isobar"

// purePackages decide; they take the time, the seed and the previous state as
// arguments. Packages beneath them are pure as well.
var purePackages = []string{"", "solver", "dataplane", "internal/plural", "internal/appendjson", "internal/capacity", "internal/load", "internal/health", "internal/policy", "internal/assign", "internal/plan", "internal/control/ending", "internal/replica/group", "internal/samples", "internal/discovery/kubernetes/table"}

// TestPurity holds the pure packages to their rules: same input, same output,
// byte for byte, with nothing that runs, waits, locks, logs or guesses.
func TestPurity(t *testing.T) {
	root := moduleRoot(t)
	c := newChecker(root)
	for _, dir := range pureDirs(t, root) {
		t.Run(path.Join(module, dir), func(t *testing.T) {
			p, err := c.load(path.Join(module, dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range p.offences() {
				t.Errorf("%s", o)
			}
		})
	}
}

// pureDirs lists the folders with Go code at and beneath the pure packages;
// each pure package must be there.
func pureDirs(t *testing.T, root string) []string {
	t.Helper()
	var dirs []string
	for _, p := range purePackages {
		if p == "" {
			dirs = append(dirs, p)
			continue
		}
		before := len(dirs)
		err := fs.WalkDir(os.DirFS(root), p, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case !d.IsDir():
				return nil
			case d.Name() == "testdata":
				return fs.SkipDir
			}
			files, err := goFiles(filepath.Join(root, name))
			if err == nil && len(files) > 0 {
				dirs = append(dirs, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(dirs) == before {
			t.Errorf("no Go code in %s: was the package moved? Mend the list of pure packages", p)
		}
	}
	return dirs
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

// goFiles lists the non-test Go files of a folder that belong to this build.
func goFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		match, err := build.Default.MatchFile(dir, name)
		if err != nil {
			return nil, err
		}
		if match {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out, nil
}

// checker loads packages with their types: those of the module from their
// files, the others from the toolchain.
type checker struct {
	root   string
	fset   *token.FileSet
	std    types.Importer
	loaded map[string]*pkg
}

// pkg is one package with its types.
type pkg struct {
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
	types *types.Package
}

func newChecker(root string) *checker {
	if build.Default.GOROOT == "" { // of a test that was built with -trimpath
		if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
			build.Default.GOROOT = strings.TrimSpace(string(out))
		}
	}
	fset := token.NewFileSet()
	return &checker{root: root, fset: fset, std: importer.ForCompiler(fset, "gc", nil), loaded: map[string]*pkg{}}
}

// Import makes the checker a types.Importer.
func (c *checker) Import(name string) (*types.Package, error) {
	if name != module && !strings.HasPrefix(name, module+"/") {
		return c.std.Import(name)
	}
	p, err := c.load(name)
	if err != nil {
		return nil, err
	}
	return p.types, nil
}

func (c *checker) load(name string) (*pkg, error) {
	if p, ok := c.loaded[name]; ok {
		return p, nil
	}
	names, err := goFiles(filepath.Join(c.root, strings.TrimPrefix(name, module)))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, n := range names {
		f, err := parser.ParseFile(c.fset, n, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	p, err := c.check(name, files)
	if err != nil {
		return nil, err
	}
	c.loaded[name] = p
	return p, nil
}

func (c *checker) check(name string, files []*ast.File) (*pkg, error) {
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Uses:       map[*ast.Ident]types.Object{},
		Defs:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Importer: c}
	tp, err := conf.Check(name, c.fset, files, info)
	if err != nil {
		return nil, err
	}
	return &pkg{fset: c.fset, files: files, info: info, types: tp}, nil
}
