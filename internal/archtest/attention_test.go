//go:build !race

package archtest

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

var (
	attentionConst = regexp.MustCompile(`(?m)^\t([A-Z]\w+)\s+Code = "(\w+)"`)
	// provoked is how a test says that something made the server tell of a code.
	provoked = regexp.MustCompile(`(?:attends\(t, [^\n]*?|range \[\]admin\.Code\{[^\n]*?|Code [!=]= |(?m:^\t+\{[^{}\n]*?))admin\.([A-Z]\w+)\b`)
)

// TestEveryAttentionCodeIsTold: each code of the attention list is told somewhere in the
// code, and some test provokes it. A code that nothing tells is a promise to operators
// that is not kept.
func TestEveryAttentionCodeIsTold(t *testing.T) {
	const list = "../admin/attention.go"
	names := map[admin.Code]string{} // of the constants
	for _, m := range attentionConst.FindAllStringSubmatch(string(read(t, list)), -1) {
		names[admin.Code(m[2])] = m[1]
	}
	tells := regexp.MustCompile(`\b(` + strings.Join(slices.Collect(maps.Values(names)), "|") + `)\b|"([a-z_]+)"`)
	told, tested := map[string]bool{}, map[string]bool{} // by the name of the constant, or the code itself
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || path == list {
			return err
		}
		text := string(read(t, path))
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range provoked.FindAllStringSubmatch(text, -1) {
				tested[m[1]] = true
			}
			return nil
		}
		for _, m := range tells.FindAllStringSubmatch(text, -1) {
			told[cmp.Or(m[1], names[admin.Code(m[2])])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for code, name := range names {
		switch {
		case admin.NewAttention(code, "").Severity == "":
			t.Errorf("%s is not in codes in %s", code, list)
		case !told[name]:
			t.Errorf("nothing tells of %s", code)
		case !tested[name]:
			t.Errorf("no test provokes %s: attends(t, status, admin.%s)", code, name)
		}
	}
}
