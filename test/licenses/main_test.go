package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestListedModules: the licences that are shown are those of the modules that
// are linked.
func TestListedModules(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	data, err := os.ReadFile("THIRD_PARTY_LICENSES")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	modules, err := goModules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 20 {
		t.Fatalf("%d modules", len(modules))
	}
	for _, m := range modules {
		if !slices.Contains(lines, m.name+" "+m.version) {
			t.Errorf("nothing of %s %s: run `make licenses`", m.name, m.version)
		}
	}
}

// TestLicencesOf: a module without a licence is an error, and line ends and names
// of files differ.
func TestLicencesOf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("README.md", "readme")
	write("licensed.go", "package x")
	if texts, err := licencesOf(dir); err == nil {
		t.Errorf("without a licence: %q", texts)
	}
	write("license", "\nyou may\r\nuse it\r\n")
	write("NOTICE.txt", "made by x\n")
	texts, err := licencesOf(dir)
	if err != nil || !slices.Equal(texts, []string{"made by x", "you may\nuse it"}) {
		t.Errorf("%q %v", texts, err)
	}
}
