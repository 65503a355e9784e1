//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSequentialPackages asserts that the packages which the Makefile tests without the race
// detector start no goroutine and share nothing between goroutines.
func TestSequentialPackages(t *testing.T) {
	root := moduleRoot(t)
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^SEQUENTIAL := ((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no SEQUENTIAL")
	}
	patterns := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	if len(files) < 100 {
		t.Fatalf("%d files of %v", len(files), patterns)
	}
	for _, name := range files {
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path := strings.Trim(i.Path.Value, `"`); path == "sync" || strings.HasPrefix(path, "sync/") {
				t.Errorf("%s imports %s: test its package with the race detector", positions.Position(i.Pos()), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if n, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: test its package with the race detector", positions.Position(n.Pos()))
			}
			return true
		})
	}
}
