//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostWords is how many words ARCHITECTURE.md may have: a reader needs 15 minutes for them.
const mostWords = 3700

// declared are the names that the repository declares: files by base name, and
// identifiers, fields and methods by package name.
type declared struct {
	files map[string]bool
	in    map[string]map[string]bool
	all   map[string]bool
}

// declaredIn parses all Go files of the repository.
func declaredIn(t *testing.T, root string) declared {
	t.Helper()
	d := declared{files: map[string]bool{}, in: map[string]map[string]bool{}, all: map[string]bool{}}
	for _, ext := range []string{".go", ".ts", ".yaml", ".yml", ".txtar", ".md", ".json"} {
		for _, name := range filesWith(t, root, ext) {
			d.files[filepath.Base(name)] = true
		}
	}
	for _, name := range filesWith(t, root, ".go") {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		d.add(f)
	}
	return d
}

// add adds the names that a file declares.
func (d declared) add(f *ast.File) {
	of := strings.TrimSuffix(f.Name.Name, "_test")
	if d.in[of] == nil {
		d.in[of] = map[string]bool{}
	}
	names := func(list ...*ast.Ident) {
		for _, n := range list {
			d.in[of][n.Name], d.all[n.Name] = true, true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names(n.Name)
		case *ast.TypeSpec:
			names(n.Name)
		case *ast.ValueSpec:
			names(n.Names...)
		case *ast.Field:
			names(n.Names...)
		}
		return true
	})
}

var (
	fileName   = regexp.MustCompile(`^[\w.*-]+\.(?:go|ts|yaml|yml|md|json|txtar)$`)
	identifier = regexp.MustCompile(`^\*?([A-Za-z]\w*)((?:\.[A-Za-z]\w*)*)(?:\(.*)?$`)
)

// TestArchitectureNamesExist: every file, directory and identifier that ARCHITECTURE.md names
// in inline code exists, and the page can be read in 15 minutes.
func TestArchitectureNamesExist(t *testing.T) {
	root := moduleRoot(t)
	data, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(data))); n > mostWords {
		t.Errorf("ARCHITECTURE.md has %d words, more than %d: shorten it, or move reasons to docs/decisions", n, mostWords)
	}
	known := declaredIn(t, root)
	checked := 0
	for _, code := range inlineCode.FindAllString(fenced.ReplaceAllString(string(data), ""), -1) {
		name := strings.Trim(code, "`")
		if slices.Contains(notInGo, name) || strings.HasPrefix(name, "make ") || strings.HasPrefix(name, "go test") || strings.HasPrefix(name, "-") {
			continue
		}
		checked++
		if !known.has(root, name) {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", code)
		}
	}
	if checked < 200 {
		t.Errorf("only %d names checked: fix this test", checked)
	}
}

// goFile is the path of a Go file in inline code, with its package or more of its directory.
var goFile = regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)+\\.go)`")

// TestDecisionsNameFilesThatExist: a decision that names a file of the code follows when the file moves.
func TestDecisionsNameFilesThatExist(t *testing.T) {
	root := moduleRoot(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "decisions", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	known, checked := declaredIn(t, root), 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goFile.FindAllStringSubmatch(string(data), -1) {
			checked++
			if !known.has(root, m[1]) {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), m[1])
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d names checked: fix this test", checked)
	}
}

// notInGo are words in inline code that name neither a file nor an identifier of Go.
var notInGo = []string{
	"More", "select", "depguard", "script-admin", "isobar_", "desc…", "node.locality", "node.cluster", "isobar.dev", "isobar checker",
	"cmd/isobar/COMMAND.go", "test/mutants/bugs/AREA.yaml", // placeholders
}

// has reports whether a file, a directory or an identifier with the name exists.
func (d declared) has(root, name string) bool {
	if found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(name))); err == nil && len(found) > 0 {
		return true
	}
	if found, err := filepath.Glob(filepath.Join(root, "internal", filepath.FromSlash(name))); err == nil && len(found) > 0 {
		return true // a package below internal/, named without it
	}
	if fileName.MatchString(name) {
		for f := range d.files {
			if ok, err := path.Match(name, f); err == nil && ok {
				return true
			}
		}
	}
	m := identifier.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	parts := strings.Split(m[1]+m[2], ".")
	if in := d.in[parts[0]]; in != nil && len(parts) > 1 {
		return !slices.ContainsFunc(parts[1:], func(p string) bool { return !in[p] })
	}
	return !slices.ContainsFunc(parts, func(p string) bool { return !d.all[p] })
}

// TestMissingNamesAreSeen: names that nothing declares are found.
func TestMissingNamesAreSeen(t *testing.T) {
	root := moduleRoot(t)
	known := declaredIn(t, root)
	for _, name := range []string{"internal/nowhere", "nofile_of_this_name.go", "plan.NoSuchName", "plan.Plan.NoSuchField", "noSuchIdentifier"} {
		if known.has(root, name) {
			t.Errorf("%s counts as declared", name)
		}
	}
	for _, name := range []string{"internal/plan", "metrics*.go", "plan.Plan", "*plan.Plan", "Next(Input) (*Plan, error)", "replay/deep"} {
		if !known.has(root, name) {
			t.Errorf("%s does not count as declared", name)
		}
	}
}
