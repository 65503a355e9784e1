//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sentinels returns the texts of the errors that packages declare for others to
// tell apart, by "package.Name".
func sentinels(t *testing.T, root string, dirs ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range dirs {
		for _, file := range parsed(t, filepath.Join(root, dir)) {
			for _, decl := range file.Decls {
				g, ok := decl.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, spec := range g.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok || len(v.Names) != 1 || len(v.Values) != 1 {
						continue
					}
					if text := newError(v.Values[0]); text != "" {
						out[file.Name.Name+"."+v.Names[0].Name] = text
					}
				}
			}
		}
	}
	return out
}

// parsed reads the files of a package that are not tests.
func parsed(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	for name := range filesOf(t, filepath.Join(dir, "*.go")) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = file
	}
	return out
}

// newError returns the text of a call of errors.New.
func newError(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 || selector(call.Fun) != "errors.New" {
		return ""
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}

// selector returns "x.Y" for such an expression, else "".
func selector(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return pkg.Name + "." + s.Sel.Name
}

// toldApart returns the errors that a case of a switch asks for, and the first
// status that it answers with.
func toldApart(c *ast.CaseClause, pkg string) (names []string, status string) {
	for _, e := range c.List {
		ast.Inspect(e, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || selector(call.Fun) != "errors.Is" || len(call.Args) != 2 {
				return true
			}
			name := selector(call.Args[1])
			if ident, local := call.Args[1].(*ast.Ident); local {
				name = pkg + "." + ident.Name
			}
			names = append(names, name)
			return false
		})
	}
	for _, statement := range c.Body {
		ast.Inspect(statement, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && status == "" {
				status = statusOf(e)
			}
			return status == ""
		})
	}
	return names, status
}
