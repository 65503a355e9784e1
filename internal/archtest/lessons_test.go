//go:build !race

package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLessonsAreTested: each row of the tables in docs/explanation/lessons.md
// names tests, and they exist where it says.
func TestLessonsAreTested(t *testing.T) {
	root := moduleRoot(t)
	data := string(read(t, filepath.Join(root, "docs", "explanation", "lessons.md")))
	name := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	functions := map[string]string{} // the tests of a package, all together
	rows, named := 0, 0
	for line := range strings.Lines(data) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| What") {
			continue
		}
		rows++
		found := name.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("no test is named in: %s", line)
		}
		for _, m := range found {
			named++
			pkg := m[1]
			if _, ok := functions[pkg]; !ok {
				var all strings.Builder
				for _, text := range filesOf(t, filepath.Join(root, filepath.FromSlash(pkg), "*_test.go")) {
					all.Write(text)
				}
				functions[pkg] = all.String()
			}
			if !strings.Contains(functions[pkg], "\nfunc "+m[2]+"(") {
				t.Errorf("%s has no %s; where has it gone?", pkg, m[2])
			}
		}
	}
	if rows < 20 || named < rows {
		t.Errorf("only %d rows with %d tests found: has the page changed its form? Mend this test", rows, named)
	}
}
