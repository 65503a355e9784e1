//go:build !race

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLinksInDocumentsHold: links to files lead to one, and to a heading in it if
// they name one.
func TestLinksInDocumentsHold(t *testing.T) {
	root := moduleRoot(t)
	link := regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	toHeadings := 0
	for _, pattern := range documents {
		for name, data := range filesOf(t, filepath.Join(root, pattern)) {
			for _, m := range link.FindAllStringSubmatch(string(data), -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				to, anchor := name, strings.TrimPrefix(m[2], "#")
				if m[1] != "" {
					to = filepath.Join(filepath.Dir(name), m[1])
				}
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s: a dead link to %s", name, m[1])
					continue
				}
				if anchor == "" {
					continue
				}
				toHeadings++
				if text, err := os.ReadFile(to); err != nil || !slices.Contains(anchors(string(text)), anchor) {
					t.Errorf("%s: no heading of %s is #%s (%v)", name, to, anchor, err)
				}
			}
		}
	}
	if toHeadings < 50 {
		t.Errorf("only %d links to headings found: mend this test", toHeadings)
	}
}

var (
	fenced    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	heading   = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unslugged = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns what headings of a document are linked by, as GitHub makes it:
// lower case, without punctuation, blanks as hyphens, and a number behind what was
// there before.
func anchors(text string) []string {
	var out []string
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		words := linkText.ReplaceAllString(m[1], "$1")
		slug := strings.ReplaceAll(unslugged.ReplaceAllString(strings.ToLower(words), ""), " ", "-")
		seen[slug]++
		if n := seen[slug]; n > 1 {
			slug += "-" + strconv.Itoa(n-1)
		}
		out = append(out, slug)
	}
	return out
}
