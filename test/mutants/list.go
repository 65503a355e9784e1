package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// mutant is one bug of the list.
type mutant struct {
	Name  string   `yaml:"name"`  // unique; begins with the area, that is the name of its list
	Bug   string   `yaml:"bug"`   // what it would do in production
	File  string   `yaml:"file"`  // relative to the root of the module, with slashes
	Old   string   `yaml:"old"`   // occurs in the file exactly once
	New   string   `yaml:"new"`   // stands there instead
	Tests []string `yaml:"tests"` // "PACKAGE [REGEXP [FLAG...]]", the cheapest first
}

var validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// readLists reads the lists of a directory, sorted by their names.
func readLists(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("mutants: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("mutants: no *.yaml in %s", dir)
	}
	var all []mutant
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // found by its pattern
		if err != nil {
			return nil, fmt.Errorf("mutants: %w", err)
		}
		var list []mutant
		if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&list); err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", file, err)
		}
		area := strings.TrimSuffix(filepath.Base(file), ".yaml")
		for i := range list {
			if err := list[i].check(area); err != nil {
				return nil, fmt.Errorf("mutants: %s: %w", file, err)
			}
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Compare(a.area(), b.area()) })
	for i := range all {
		if slices.ContainsFunc(all[:i], func(m mutant) bool { return m.Name == all[i].Name }) {
			return nil, fmt.Errorf("mutants: two bugs are called %s", all[i].Name)
		}
	}
	return all, nil
}

// check looks at what can be told without the code.
func (m *mutant) check(area string) error {
	switch {
	case !validName.MatchString(m.Name) || m.area() != area:
		return fmt.Errorf("the name %q should be words in lower case joined by hyphens, the first %q", m.Name, area)
	case m.Bug == "":
		return fmt.Errorf("%s: say in bug what it would do in production", m.Name)
	case m.Old == "" || m.Old == m.New:
		return fmt.Errorf("%s: old and new should be texts that differ", m.Name)
	case !filepath.IsLocal(filepath.FromSlash(m.File)) || path.Ext(m.File) != ".go" || strings.HasSuffix(m.File, "_test.go"):
		return fmt.Errorf("%s: file should be a Go file of this module that is no test", m.Name)
	case len(m.Tests) == 0:
		return fmt.Errorf("%s: say in tests which packages should fail", m.Name)
	}
	for _, t := range m.Tests {
		if !strings.HasPrefix(t, "./") {
			return fmt.Errorf("%s: %q should begin with a package as ./DIRECTORY", m.Name, t)
		}
	}
	return nil
}

func (m *mutant) area() string {
	area, _, _ := strings.Cut(m.Name, "-")
	return area
}

// apply returns the file with the bug in it.
func (m *mutant) apply(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File))) //nolint:gosec // checked to be local
	if err != nil {
		return nil, fmt.Errorf("the file is gone: %w", err)
	}
	if n := bytes.Count(data, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("old occurs %d times in %s, want once: adapt the bug to the code of today", n, m.File)
	}
	data = bytes.Replace(data, []byte(m.Old), []byte(m.New), 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.File, data, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("with the bug it is no Go any more: %w", err)
	}
	return data, nil
}
