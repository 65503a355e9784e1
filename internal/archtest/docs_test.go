//go:build !race

package archtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/config"
)

// TestExamplesHold decodes every example as the server would.
func TestExamplesHold(t *testing.T) {
	root := moduleRoot(t)
	for name, data := range filesOf(t, filepath.Join(root, "examples", "*.yaml")) {
		var warnings []config.Problem
		var err error
		if strings.HasPrefix(filepath.Base(name), "problem") {
			_, warnings, err = config.DecodeProblem(name, data)
		} else {
			_, warnings, err = config.Decode(name, data)
		}
		if err != nil {
			t.Error(err)
		}
		for _, w := range warnings {
			t.Error(w)
		}
	}
}

// documents are all of them, as patterns of paths.
var documents = []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md"}

// TestYAMLInDocumentsHolds: a YAML block that names a file of examples/ in its
// first line holds, and is that file but for comments.
func TestYAMLInDocumentsHolds(t *testing.T) {
	root := moduleRoot(t)
	block := regexp.MustCompile("(?s)```yaml\n# (\\S+\\.yaml)\n(.*?)```")
	for _, pattern := range documents {
		for name, data := range filesOf(t, filepath.Join(root, pattern)) {
			for _, m := range block.FindAllStringSubmatch(string(data), -1) {
				example, err := os.ReadFile(filepath.Join(root, "examples", filepath.Base(m[1])))
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if withoutComments(m[2]) != withoutComments(string(example)) {
					t.Errorf("%s: the block %s differs from examples/%s", name, m[1], filepath.Base(m[1]))
				}
			}
		}
	}
}

// TestConfigurationInDocumentsHolds: a YAML block whose fields are those of a
// configuration file has no others, and values that the server takes. It may be
// a part: what is missing is not counted.
func TestConfigurationInDocumentsHolds(t *testing.T) {
	block := regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```")
	top := regexp.MustCompile(`(?m)^(\w+):`)
	ours := regexp.MustCompile(`^(xds|admin|source|services|defaults|network|degradation|log|tick|report_interval|state_dir)$`)
	found := 0
	for _, pattern := range []string{"*.md", "docs/*/*.md"} {
		for name, data := range filesOf(t, filepath.Join(moduleRoot(t), pattern)) {
			for _, m := range block.FindAllStringSubmatch(string(data), -1) {
				text := regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[2], "")
				if first := top.FindStringSubmatch(text); first == nil || !ours.MatchString(first[1]) {
					continue // of Envoy, or of something within
				}
				found++
				_, _, err := config.Decode(filepath.Base(name), []byte(text))
				for line := range strings.Lines(fmt.Sprint(err)) {
					if err != nil && !strings.Contains(line, `field "localities" is missing`) {
						t.Errorf("%s\n%s", line, text)
					}
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d blocks found: have the documents changed their form? Mend this test", found)
	}
}

func filesOf(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = data
	}
	return out
}

// withoutComments leaves out lines that are comments only.
func withoutComments(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestEveryMetricIsDocumented looks for the names of metrics in the code: whole
// ones, and those that are put together from a prefix and the first argument
// of a helper named counter or vec.
func TestEveryMetricIsDocumented(t *testing.T) {
	root := moduleRoot(t)
	docs, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`(?:Name: +|NewDesc\()"(isobar_[a-z0-9_]*[a-z])"`)
	prefix := regexp.MustCompile(`"(isobar_[a-z]+_)" \+ name`)
	part := regexp.MustCompile(`\b(?:counter|vec)\("([a-z_]+)"`)
	found := 0
	expect := func(name, in string) {
		found++
		if !strings.Contains(string(docs), "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md does not have %s of %s", name, in)
		}
	}
	files := filesOf(t, filepath.Join(root, "internal", "*", "*.go"))
	maps.Copy(files, filesOf(t, filepath.Join(root, "internal", "*", "*", "*.go")))
	for name, data := range files {
		for _, m := range whole.FindAllStringSubmatch(string(data), -1) {
			expect(m[1], name)
		}
		if p := prefix.FindStringSubmatch(string(data)); p != nil {
			for _, m := range part.FindAllStringSubmatch(string(data), -1) {
				expect(p[1]+m[1], name)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d metrics found: has the code changed its form? Mend this test", found)
	}
}
