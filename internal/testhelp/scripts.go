package testhelp

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/status"
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

// Script is what players of scenarios have in common: T is the test, At the line that is played.
type Script struct {
	T  *testing.T
	At string
}

// Failf ends the scenario with a message that names the line.
func (s *Script) Failf(format string, args ...any) {
	s.T.Helper()
	s.T.Fatalf("%s: "+format, append([]any{s.At}, args...)...)
}

// Number reads a whole number, 0 or more.
func (s *Script) Number(word string) int {
	s.T.Helper()
	n, err := strconv.ParseUint(word, 10, 63)
	if err != nil {
		s.Failf("%v", err)
	}
	return int(n)
}

// Duration reads a duration, such as 5s.
func (s *Script) Duration(word string) time.Duration {
	s.T.Helper()
	d, err := time.ParseDuration(word)
	if err != nil {
		s.Failf("%v", err)
	}
	return d
}

// Settings reads words of the form NAME=VALUE, or NAME alone, and hands each on.
func (s *Script) Settings(words []string, set map[string]func(value string)) {
	s.T.Helper()
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if set[name] == nil {
			s.Failf("no setting of the server: %q", w)
		}
		set[name](value)
	}
}

// Heard is what came on a stream since a script asked last, and how the stream ended.
type Heard[T any] struct {
	mu   sync.Mutex
	said []T
	end  error
}

// Listen keeps what recv returns until it returns an error.
func (h *Heard[T]) Listen(recv func() (T, error)) {
	for {
		m, err := recv()
		h.mu.Lock()
		if err != nil {
			h.end = err
			h.mu.Unlock()
			return
		}
		h.said = append(h.said, m)
		h.mu.Unlock()
	}
}

// Take returns what came since the last call.
func (h *Heard[T]) Take() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.said
	h.said = nil
	return out
}

// Ended checks "CODE: TEXT": the gRPC status with which the stream has ended, and a part of
// its message.
func (h *Heard[T]) Ended(s *Script, name, text string) {
	s.T.Helper()
	h.mu.Lock()
	err := h.end
	h.mu.Unlock()
	code, why, _ := strings.Cut(text, ": ")
	if err == nil || status.Code(err).String() != code || !strings.Contains(status.Convert(err).Message(), why) {
		s.Failf("the stream of %s ended with %v, want %s", name, err, text)
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
