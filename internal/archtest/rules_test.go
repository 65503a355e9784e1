//go:build !race

package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// allowedImports are the packages of the standard library that are pure
// themselves, as far as the rules on single functions below reach.
var allowedImports = []string{
	"bytes", "cmp", "container/heap", "crypto/sha256", "encoding", "encoding/binary", "encoding/hex", "encoding/json",
	"errors", "fmt", "hash", "hash/crc32", "hash/fnv", "iter", "maps", "math", "math/bits", "math/rand/v2", "net/netip",
	"slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// forbiddenFuncs are the impure functions of the packages that may be imported.
var forbiddenFuncs = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "LoadLocation", "Local"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

// seededRand are the functions of math/rand/v2 that do not draw from the
// global source.
var seededRand = []string{"New", "NewPCG", "NewChaCha8", "NewZipf"}

// orderedBy are the functions that take an unordered sequence and order it.
var orderedBy = []string{"Sorted", "SortedFunc", "SortedStableFunc"}

// annotation marks a range over a map whose order does not reach an output;
// a reason has to follow.
const annotation = "//isobar:sorted "

type offence struct {
	pos  token.Position
	text string
}

func (o offence) String() string { return fmt.Sprintf("%s: %s", o.pos, o.text) }

// offences lists what in the package is not pure.
func (p *pkg) offences() []offence {
	var out []offence
	for _, f := range p.files {
		v := &visitor{pkg: p, notes: annotated(p.fset, f)}
		v.imports(f)
		ast.Inspect(f, v.visit)
		out = append(out, v.found...)
	}
	return out
}

// annotated tells the lines that an annotation with a reason covers: its own
// and the one below.
func annotated(fset *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if reason, ok := strings.CutPrefix(c.Text, annotation); ok && len(strings.Fields(reason)) >= 2 {
				line := fset.Position(c.Pos()).Line
				lines[line], lines[line+1] = true, true
			}
		}
	}
	return lines
}

// visitor collects the offences of one file.
type visitor struct {
	*pkg

	notes map[int]bool
	fn    ast.Node               // the function that is being visited, for sorts that follow a loop
	ok    map[*ast.CallExpr]bool // calls whose order somebody else fixes
	found []offence
}

func (v *visitor) reportf(n ast.Node, format string, args ...any) {
	v.found = append(v.found, offence{pos: v.fset.Position(n.Pos()), text: fmt.Sprintf(format, args...)})
}

func (v *visitor) imports(f *ast.File) {
	for _, i := range f.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if err != nil || name == module || strings.HasPrefix(name, module+"/") {
			continue // the linter looks after the direction of the module's own imports
		}
		if !slices.Contains(allowedImports, name) {
			v.reportf(i, "a pure package may not import %s", name)
		}
	}
}

func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		v.fn = n
	case *ast.GoStmt:
		v.reportf(n, "a pure package starts no goroutine")
	case *ast.SelectStmt:
		v.reportf(n, "a pure package has no select")
	case *ast.SendStmt:
		v.reportf(n, "a pure package sends on no channel")
	case *ast.ChanType:
		v.reportf(n, "a pure package has no channel")
	case *ast.SelectorExpr:
		v.selector(n)
	case *ast.CallExpr:
		v.call(n)
	case *ast.RangeStmt:
		v.rangeStmt(n)
	case *ast.AssignStmt:
		for _, l := range n.Lhs {
			v.assigned(l)
		}
	case *ast.IncDecStmt:
		v.assigned(n.X)
	}
	return true
}

func (v *visitor) selector(n *ast.SelectorExpr) {
	obj := v.info.Uses[n.Sel]
	if obj == nil || obj.Pkg() == nil {
		return
	}
	if sel := v.info.Selections[n]; sel != nil { // a method or field
		if obj.Pkg().Path() == "time" && obj.Name() == "Local" {
			v.reportf(n, "Time.Local depends on the machine's time zone")
		}
		return
	}
	name := obj.Name()
	if slices.Contains(forbiddenFuncs[obj.Pkg().Path()], name) {
		v.reportf(n, "a pure package may not use %s.%s: take it as an argument", obj.Pkg().Name(), name)
	}
	if _, isFunc := obj.(*types.Func); isFunc && obj.Pkg().Path() == "math/rand/v2" && !slices.Contains(seededRand, name) {
		v.reportf(n, "rand.%s draws from the global source: take a seed as an argument", name)
	}
}

// call looks at the sequences of package maps: they come in random order, so
// they must go straight into a sort.
func (v *visitor) call(n *ast.CallExpr) {
	pkgPath, name := v.callee(n)
	if pkgPath == "slices" && slices.Contains(orderedBy, name) && len(n.Args) > 0 {
		if inner, isCall := n.Args[0].(*ast.CallExpr); isCall {
			if v.ok == nil {
				v.ok = map[*ast.CallExpr]bool{}
			}
			v.ok[inner] = true
		}
	}
	if pkgPath == "maps" && slices.Contains([]string{"Keys", "Values", "All"}, name) && !v.ok[n] && !v.noted(n) {
		v.reportf(n, "maps.%s has no order: wrap it in slices.Sorted, or say why that does not matter: %s<reason>", name, annotation)
	}
}

func (v *visitor) callee(n *ast.CallExpr) (pkgPath, name string) {
	fun := ast.Unparen(n.Fun)
	if ix, ok := fun.(*ast.IndexExpr); ok {
		fun = ix.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	obj := v.info.Uses[sel.Sel]
	if obj == nil || obj.Pkg() == nil || v.info.Selections[sel] != nil {
		return "", ""
	}
	return obj.Pkg().Path(), obj.Name()
}

func (v *visitor) rangeStmt(n *ast.RangeStmt) {
	t := v.info.TypeOf(n.X)
	if t == nil {
		return
	}
	if _, isChan := t.Underlying().(*types.Chan); isChan {
		v.reportf(n, "a pure package receives from no channel")
	}
	if !mapLike(t) || v.noted(n) || v.collectsAndSorts(n) {
		return
	}
	v.reportf(n, "a range over a map has no order: collect the keys and sort them, or say why that does not matter: %s<reason>", annotation)
}

// mapLike tells maps, and type parameters whose type set has one.
func mapLike(t types.Type) bool {
	if _, ok := t.Underlying().(*types.Map); ok {
		return true
	}
	tp, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		return false
	}
	iface, ok := tp.Constraint().Underlying().(*types.Interface)
	if !ok {
		return false
	}
	for e := range iface.EmbeddedTypes() {
		u, ok := e.(*types.Union)
		if !ok {
			continue
		}
		for term := range u.Terms() {
			if _, isMap := term.Type().Underlying().(*types.Map); isMap {
				return true
			}
		}
	}
	return false
}

func (v *visitor) noted(n ast.Node) bool { return v.notes[v.fset.Position(n.Pos()).Line] }

// collectsAndSorts tells whether the loop does nothing but append to one slice
// that the same function sorts after the loop.
func (v *visitor) collectsAndSorts(n *ast.RangeStmt) bool {
	if len(n.Body.List) != 1 || v.fn == nil {
		return false
	}
	as, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || len(as.Lhs) != 1 || len(as.Rhs) != 1 {
		return false
	}
	target, ok := as.Lhs[0].(*ast.Ident)
	if !ok {
		return false
	}
	call, ok := as.Rhs[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	if fun, isIdent := call.Fun.(*ast.Ident); !isIdent || fun.Name != "append" {
		return false
	}
	obj := v.info.ObjectOf(target)
	sorted := false
	ast.Inspect(v.fn, func(m ast.Node) bool {
		c, isCall := m.(*ast.CallExpr)
		if !isCall || c.Pos() < n.End() || len(c.Args) == 0 {
			return true
		}
		pkgPath, name := v.callee(c)
		arg, isIdent := c.Args[0].(*ast.Ident)
		if isIdent && v.info.ObjectOf(arg) == obj && (pkgPath == "slices" && strings.HasPrefix(name, "Sort") || pkgPath == "sort") {
			sorted = true
		}
		return true
	})
	return sorted
}

// assigned refuses writes to package variables: hidden state makes two equal
// calls differ.
func (v *visitor) assigned(e ast.Expr) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.Ident:
			obj, isVar := v.info.Uses[x].(*types.Var)
			if isVar && obj.Parent() == v.types.Scope() {
				v.reportf(x, "a pure package keeps no state: %s is a package variable", x.Name)
			}
			return
		default:
			return
		}
	}
}
