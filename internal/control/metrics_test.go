package control_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// rulesOf reads the names of the rules from the source of package invariant, so
// that a new one can't be forgotten.
func rulesOf(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "assign", "invariant", "check.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Rule") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, name)
		}
		return true
	})
	if len(out) < 11 {
		t.Fatalf("found only %q", out)
	}
	return out
}

// TestViolationsHaveSeriesFromTheStart: a rate sees the first event of a
// counter only if the counter was there before.
func TestViolationsHaveSeriesFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newParts()
	_, err := control.New(control.Options{
		Timing:   func() control.Timing { return control.Timing{Tick: time.Second, Interval: time.Second} },
		Topology: p, Reports: p, Clients: p, State: p, Views: p.views(view.NewBuilder(view.Options{})), Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	series := testhelp.Series(t, registry, "isobar_plan_violations_total")
	for _, rule := range rulesOf(t) {
		if v, ok := series[rule]; !ok || v != 0 {
			t.Errorf("rule %s has no series at 0: add it to rules in metrics.go", rule)
		}
	}
}
