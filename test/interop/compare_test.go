package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPageIsCompared: a page that says other than what was seen is an error,
// until it is written.
func TestPageIsCompared(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("head\n"+begin+"| old |\n"+end+"tail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	saw := &table{rows: map[string]*row{}}
	saw.is("walker", "1.0", "v3")
	saw.passed("walker", drops)
	saw.fact("walker", "walks")
	if err := saw.compare(path, false); err == nil || !strings.Contains(err.Error(), "| walker | 1.0 | v3 | - | - | yes |") {
		t.Errorf("want an error that shows what was seen, got %v", err)
	}
	for _, write := range []bool{true, false} {
		if err := saw.compare(path, write); err != nil {
			t.Errorf("write %v: %v", write, err)
		}
	}
	page := string(read(t, path))
	if !strings.HasPrefix(page, "head\n"+begin) || !strings.HasSuffix(page, "- walks: walker\n\n"+end+"tail\n") {
		t.Errorf("what stands around was lost:\n%s", page)
	}
	saw.passed("walker", weights)
	if err := saw.compare(path, false); err == nil {
		t.Error("no error though more was seen")
	}
	if err := saw.compare(filepath.Join(t.TempDir(), "none.md"), true); err == nil {
		t.Error("no error without a page")
	}
}
