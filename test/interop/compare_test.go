package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sight is a table with the cells of one client.
func sight(client string, cells map[string]bool, facts ...string) *table {
	return &table{cells: map[string]map[string]bool{client: cells}, who: map[string]version{client: {"1.0", v3}}, facts: map[string][]string{client: facts}}
}

// The page is written when that is asked for, and is else not to differ from what
// the tests that ran have seen. Cells of other tests stand.
func TestPageIsWhatTheTestsHaveSeen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	data := read(t, "../../docs/reference/compatibility.md")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	none := &table{}
	if err := none.compare(path, false, false, false); err != nil {
		t.Fatalf("a run without clients: %v", err)
	}
	const client = "grpc-js"
	good := sight(client, map[string]bool{weights: true}, "does this: and that")
	if err := good.compare(path, false, false, false); err == nil {
		t.Error("a fact that is not on the page is no error")
	}
	if err := good.compare(path, true, false, false); err != nil {
		t.Fatal(err)
	}
	if err := good.compare(path, false, false, false); err != nil {
		t.Errorf("the page was written, and yet: %v", err)
	}
	if text := string(read(t, path)); !strings.Contains(text, "- does this: and that: "+client+"\n") || !strings.Contains(text, "| grpc-js | 1.0 | v3 | yes |") {
		t.Errorf("the page is %s", text)
	}
	for name, bad := range map[string]*table{
		"a test fails":                  sight(client, map[string]bool{weights: false}, "does this: and that"),
		"a test passes without need of": sight(client, map[string]bool{outOfBand: true}, "does this: and that"),
	} {
		for _, write := range []bool{false, true} {
			if err := bad.compare(path, write, false, false); err == nil {
				t.Errorf("%s (write %v): no error", name, write)
			}
		}
	}
	if err := good.compare(path, true, true, true); err == nil || !strings.Contains(err.Error(), unknown) {
		t.Errorf("all tests ran, and most cells were not seen: %v", err)
	}
}
