package testhelp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ScriptLine is a line of a scenario, without its comment and the spaces around it.
type ScriptLine struct {
	At   string // file:line, for messages
	Text string
}

// Scripts plays the scenarios of testdata/script/*.txt, each as a test of its own. A scenario
// begins with "== what it shows". Empty lines, and what follows a "#" after a space, don't count; what stands
// above the first scenario explains the file.
func Scripts(t *testing.T, play func(t *testing.T, lines []ScriptLine)) {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of the test
		if err != nil {
			t.Fatal(err)
		}
		number := 1
		for i, scenario := range strings.Split(string(text), "== ") {
			title, body, _ := strings.Cut(scenario, "\n")
			if i > 0 {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+title, func(t *testing.T) {
					play(t, scriptLines(file, number+1, body))
				})
			}
			number += strings.Count(scenario, "\n")
		}
	}
}

func scriptLines(file string, first int, body string) (out []ScriptLine) {
	for i, line := range strings.Split(body, "\n") {
		line, _, _ = strings.Cut(" "+line, " #")
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, ScriptLine{At: fmt.Sprintf("%s:%d", file, first+i), Text: line})
		}
	}
	return out
}
