//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// privateNames are words that names in code no longer contain, each with the terms to
// choose from: those of Envoy, gRPC, etcd, Prometheus and Go's standard library.
var privateNames = map[string]string{
	"room": "headroom, remaining, width, buffer, limit", "rooms": "headrooms, buffers",
	"form": "API version, encoding, pattern", "forms": "API versions, encodings",
	"orders": "what they are: health changes, writes, requests",
	"reign":  "share generation, leadership term", "reigns": "share generations, leadership terms",
	"book": "verdict table, state", "books": "tables, states", "ledger": "table, log", "office": "fleet",
	"board": "table, dashboard", "desk": "table", "ballot": "vote", "bell": "trigger", "metronome": "ticker",
	"rung": "degradation level", "rungs": "degradation levels", "ladder": "degradation levels",
}

// TestPrivateWordsAreFound: names are split into words, in camel case and in snake case.
func TestPrivateWordsAreFound(t *testing.T) {
	for name, want := range map[string]string{
		"room": "room", "nearRoom": "room", "RoomAbove": "room", "TestHTTPForms": "forms", "forms_test": "forms", "oldBook2": "book",
		"headroom": "", "bookmark": "", "format": "", "Rebound": "", "HTTPServer": "", "reorders": "", "": "",
	} {
		if got := strings.Join(privateWordsIn(name), " "); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// privateWordsIn returns the private words that a name contains.
func privateWordsIn(name string) (out []string) {
	for _, w := range wordsOf(name) {
		if privateNames[w] != "" {
			out = append(out, w)
		}
	}
	return out
}

// wordsOf splits a name in camel case or snake case, in lower case.
func wordsOf(name string) (out []string) {
	begin, runes := 0, []rune(name)
	end := func(at int) {
		if w := strings.ToLower(strings.Trim(string(runes[begin:at]), "_-.")); w != "" {
			out = append(out, w)
		}
		begin = at
	}
	for i, r := range runes {
		next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		switch {
		case i == 0:
		case !unicode.IsLetter(r), unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || next):
			end(i)
		}
	}
	end(len(runes))
	return out
}

// TestNamesAreOfTheField: declared names and files of Go code contain no private words.
func TestNamesAreOfTheField(t *testing.T) {
	root := moduleRoot(t)
	for _, path := range filesWith(t, root, ".go") {
		name := relative(t, root, path)
		if strings.HasSuffix(name, ".pb.go") {
			continue
		}
		for _, w := range privateWordsIn(strings.TrimSuffix(filepath.Base(name), ".go")) {
			t.Errorf("%s: %q in the name of a file: write %s", name, w, privateNames[w])
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range declaredNames(file) {
			for _, w := range privateWordsIn(id.Name) {
				t.Errorf("%s: %q in %s: write %s", set.Position(id.Pos()), w, id.Name, privateNames[w])
			}
		}
	}
}

// declaredNames returns the names that a file declares, local ones included.
func declaredNames(file *ast.File) (out []*ast.Ident) {
	add := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				out = append(out, id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			out = append(out, n.Names...)
		case *ast.Field:
			out = append(out, n.Names...)
		case *ast.RangeStmt:
			add(n.Key, n.Value)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				add(n.Lhs...)
			}
		}
		return true
	})
	return out
}
