//go:build !race

package archtest

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/identity"
)

var update = flag.Bool("update", false, "write the list of refusals into docs/reference/errors.md")

// Marks of the part of errors.md that is made of the code.
const (
	textsBegin = "<!-- refusals: made of the code by `go test ./internal/archtest -update` -->"
	textsEnd   = "<!-- end of the refusals -->"
)

// TestEveryRefusalIsListed: who searches the documentation for the text of an
// error finds its status.
func TestEveryRefusalIsListed(t *testing.T) {
	root := moduleRoot(t)
	path := filepath.Join(root, "docs", "reference", "errors.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	docs := string(data)
	from, to := strings.Index(docs, textsBegin), strings.Index(docs, textsEnd)
	if from < 0 || to < from {
		t.Fatalf("%s has no place for the refusals", path)
	}
	for _, r := range []admission.Reason{
		admission.TotalRate, admission.PeerRate, admission.PeerStreams, admission.PeerLocalities, admission.Answers,
	} {
		if !strings.Contains(docs, "`"+r.Text()+"`") {
			t.Errorf("docs/reference/errors.md does not have %q", r.Text())
		}
	}
	for _, err := range []error{identity.ErrAnonymous, identity.ErrUnknown, identity.ErrRole, identity.ErrLocality} {
		if !strings.Contains(docs, "`"+err.Error()+"`") {
			t.Errorf("docs/reference/errors.md does not have %q", err)
		}
	}
	found := refusals(t, root)
	if len(found) < 40 {
		t.Errorf("only %d refusals found: has the code changed its form? Mend this test", len(found))
	}
	var list strings.Builder
	list.WriteString(textsBegin + "\n\n| Text | Status |\n|---|---|\n")
	for _, text := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&list, "| %s | %s |\n", text, strings.Join(slices.Sorted(maps.Keys(found[text])), ", "))
	}
	list.WriteString("\n")
	if docs[from:to] == list.String() {
		return
	}
	if !*update {
		t.Fatalf("docs/reference/errors.md does not list the refusals as they are; run go test ./internal/archtest -update. Want:\n%s", list.String())
	}
	if err := os.WriteFile(path, []byte(docs[:from]+list.String()+docs[to:]), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refusals finds the texts that are written out in the code, with their
// statuses. Those of messages that break a rule name the field, and are as many
// as there are fields: they are not listed.
func refusals(t *testing.T, root string) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	known := sentinels(t, root, ".", "internal/plan", "internal/admin", "internal/xds")
	for _, pkg := range []string{"admin", "xds", "xds/csds", "xds/resource", "lrs", "lrs/reader", "hds", "hds/convert", "rpc", "listen", "member", "server"} {
		for _, file := range parsed(t, filepath.Join(root, "internal", pkg)) {
			add := func(text, status string) {
				if text == "" || text == ellipsis || status == "" {
					return
				}
				if out[text] == nil {
					out[text] = map[string]bool{}
				}
				out[text][status] = true
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					add(refusal(n))
				case *ast.CaseClause:
					names, code := toldApart(n, file.Name.Name)
					for _, name := range names {
						add(known[name], code)
					}
				case *ast.FuncDecl:
					texts, codes := prepared(n)
					for _, code := range codes {
						for _, text := range texts {
							add(text, code)
						}
					}
				}
				return true
			})
		}
	}
	return out
}

// refusal returns the text and status of a call that refuses something; empty
// where it does not, or where the text comes from elsewhere.
func refusal(call *ast.CallExpr) (text, code string) {
	for i, a := range call.Args {
		if code = statusOf(a); code == "" {
			continue
		}
		for _, other := range append(slices.Clone(call.Args[i+1:]), call.Args[:i]...) {
			if text = textOf(other); text != "" {
				return text, code
			}
		}
	}
	return "", code
}

// statusOf reads codes.X and http.StatusX.
func statusOf(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	switch name, isStatus := strings.CutPrefix(s.Sel.Name, "Status"); {
	case pkg.Name == "codes" && s.Sel.Name != "Code":
		return "`" + upperSnake(s.Sel.Name) + "`"
	case pkg.Name == "http" && isStatus:
		for n := http.StatusBadRequest; n < 600; n++ {
			if strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(n)) == name {
				return strconv.Itoa(n)
			}
		}
	}
	return ""
}

// textOf returns a text as far as it is written out, with an ellipsis for the
// rest: also that of a Problem, and of Sprintf.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if e.Kind != token.STRING || err != nil || strings.TrimSpace(text) == "" {
			return ""
		}
		text = verb.ReplaceAllString(strings.TrimPrefix(text, "isobar: "), ellipsis)
		return strings.ReplaceAll(text, "|", "\\|")
	case *ast.BinaryExpr:
		first := textOf(e.X)
		if first == "" {
			return ""
		}
		return first + cmp.Or(textOf(e.Y), ellipsis)
	case *ast.CallExpr:
		if len(e.Args) > 0 {
			if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" {
				return textOf(e.Args[0])
			}
		}
	case *ast.CompositeLit:
		if ident, ok := e.Type.(*ast.Ident); !ok || ident.Name != "Problem" {
			return ""
		}
		for _, part := range e.Elts {
			if kv, ok := part.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Error" {
					return textOf(kv.Value)
				}
			}
		}
	}
	return ""
}

const ellipsis = "…"

var verb = regexp.MustCompile(`%[-+#0-9.]*[a-zA-Z]`)

// prepared finds the texts of problems that a function fills before it answers
// with them, and the statuses with which it does.
func prepared(f *ast.FuncDecl) (texts, codes []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if s, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.SelectorExpr); ok && s.Sel.Name != "Error" {
					continue
				}
				if text := textOf(right); text != "" && isProblem(n.Lhs[min(i, len(n.Lhs)-1)], right) {
					texts = append(texts, text)
				}
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "fail" && len(n.Args) == 3 {
				if _, filled := n.Args[2].(*ast.Ident); filled {
					codes = append(codes, statusOf(n.Args[1]))
				}
			}
		}
		return true
	})
	return texts, codes
}

// isProblem tells whether what is assigned is a problem, or the text of one.
func isProblem(left, right ast.Expr) bool {
	if _, whole := right.(*ast.CompositeLit); whole {
		return true
	}
	s, ok := left.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Error"
}
