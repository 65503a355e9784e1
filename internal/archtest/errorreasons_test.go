//go:build !race

package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

// TestEveryReasonIsListed: who sees a reason on a metric or in the log finds
// what it means, and nothing is explained that does not occur.
func TestEveryReasonIsListed(t *testing.T) {
	root := moduleRoot(t)
	data, err := os.ReadFile(filepath.Join(root, "docs", "reference", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "### Reasons in metrics and logs\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("docs/reference/errors.md has no section on reasons")
	}
	var listed []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[2], -1) {
				listed = append(listed, m[1])
			}
		}
	}
	var used []string
	for _, r := range []admission.Reason{
		admission.TotalRate, admission.PeerRate, admission.PeerStreams, admission.PeerLocalities, admission.NoMessage, admission.Answers,
		admission.Connections, admission.PeerConnections, admission.PartMessages, admission.Yielded, admission.ProxyHeader,
	} {
		used = append(used, string(r))
	}
	for _, r := range slices.Concat(reader.RejectCodes(), convert.HealthRejectCodes()) {
		used = append(used, string(r))
	}
	for _, pkg := range []string{"xds", "lrs", "hds"} {
		used = append(used, labels(t, filepath.Join(root, "internal", pkg), "refused", "reject")...)
	}
	for _, names := range []*[]string{&listed, &used} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	if !slices.Equal(listed, used) {
		t.Errorf("docs/reference/errors.md lists the reasons\n%v, the code has\n%v", listed, used)
	}
}

// labels returns the texts of a package's constants whose names begin so.
func labels(t *testing.T, dir string, prefixes ...string) (out []string) {
	t.Helper()
	for _, file := range parsed(t, dir) {
		for _, decl := range file.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || len(v.Names) != 1 || len(v.Values) != 1 ||
					!slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(v.Names[0].Name, p) }) {
					continue
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, text)
				}
			}
		}
	}
	return out
}
