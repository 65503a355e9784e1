package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// outcome is what became of a mutant.
type outcome string

const (
	caught   outcome = "caught"   // a test failed
	survived outcome = "survived" // all tests passed
	broken   outcome = "broken"   // it does not compile, or its old text is gone: the list is wrong
)

// result is a mutant with its outcome.
type result struct {
	mutant

	outcome outcome
	why     string // the test that failed, or what is wrong
	took    time.Duration
}

// runner runs tests of a module.
type runner struct {
	root    string
	dir     string // for files of its own
	timeout time.Duration
	out     io.Writer
}

// sound runs the tests without any bug: what fails then says nothing.
func (r *runner) sound(ctx context.Context, mutants []mutant) error {
	var all []string
	for i := range mutants {
		all = append(all, mutants[i].Tests...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for i, t := range all {
		_, _ = fmt.Fprintf(r.out, "without bugs %d/%d: %s\n", i+1, len(all), t)
		if failed, output := r.test(ctx, t, ""); failed != "" {
			return fmt.Errorf("mutants: %s fails as the code is: %s\n%s", t, failed, output)
		}
	}
	return nil
}

// all tries the mutants one after the other: with two at a time, tests could
// fail for lack of time.
func (r *runner) all(ctx context.Context, mutants []mutant) []result {
	var out []result
	for i := range mutants {
		begun := time.Now()
		x := r.one(ctx, &mutants[i])
		if ctx.Err() != nil {
			break
		}
		x.took = time.Since(begun)
		_, _ = fmt.Fprintf(r.out, "%d/%d %s: %s, %s (%.1f s)\n", i+1, len(mutants), x.Name, x.outcome, x.why, x.took.Seconds())
		out = append(out, x)
	}
	return out
}

func (r *runner) one(ctx context.Context, m *mutant) result {
	x := result{mutant: *m}
	overlay, err := r.overlay(m)
	if err != nil {
		x.outcome, x.why = broken, err.Error()
		return x
	}
	// Its package first: a test binary that can't be built proves nothing.
	if output, err := r.golang(ctx, "build", "-overlay", overlay, "./"+filepath.ToSlash(filepath.Dir(m.File))); err != nil {
		x.outcome, x.why = broken, "it does not compile: "+firstLine(output)
		return x
	}
	for _, t := range m.Tests {
		switch failed, output := r.test(ctx, t, overlay); {
		case failed == notBuilt:
			x.outcome, x.why = broken, failed+": "+firstLine(output)
			return x
		case failed != "":
			x.outcome, x.why = caught, "by "+failed+" in "+strings.Fields(t)[0]
			return x
		}
	}
	x.outcome, x.why = survived, "no test of "+strings.Join(m.Tests, ", ")+" fails: "+m.Bug
	return x
}

// overlay writes what go reads instead of the mutant's file.
func (r *runner) overlay(m *mutant) (string, error) {
	data, err := m.apply(r.root)
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(r.root)
	if err != nil {
		return "", err
	}
	code, list := filepath.Join(r.dir, m.Name+".go"), filepath.Join(r.dir, m.Name+".json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, filepath.FromSlash(m.File)): code}})
	if err != nil {
		return "", err
	}
	return list, errors.Join(os.WriteFile(code, data, 0o600), os.WriteFile(list, text, 0o600))
}

const (
	notBuilt = "the tests don't compile"
	hung     = "a time limit"
)

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// test runs tests of a package, and tells what failed; empty when nothing did.
func (r *runner) test(ctx context.Context, test, overlay string) (failed, output string) {
	words := strings.Fields(test) // PACKAGE [REGEXP [FLAG...]]
	args := []string{"test", "-vet=off", "-count=1", "-failfast", "-timeout", r.timeout.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if len(words) > 1 {
		args = append(args, "-run", words[1])
	}
	args = append(args, words[0], "-args")
	if r.usesRapid(words[0]) {
		// Failing is enough: no search for the smallest case, no file about it.
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	if len(words) > 2 {
		args = append(args, words[2:]...)
	}
	output, err := r.golang(ctx, args...)
	switch {
	case err == nil && strings.Contains(output, "[no tests to run]"):
		return "no test matches", output
	case err == nil:
		return "", output
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return notBuilt, output
	case strings.Contains(output, "panic: test timed out"):
		return hung, output
	}
	if m := failedTest.FindStringSubmatch(output); m != nil {
		return m[1], output
	}
	return firstLine(output), output
}

// usesRapid reports whether a package's tests know rapid's flags.
func (r *runner) usesRapid(pkg string) bool {
	files, _ := filepath.Glob(filepath.Join(r.root, filepath.FromSlash(pkg), "*_test.go"))
	return slices.ContainsFunc(files, func(f string) bool {
		data, err := os.ReadFile(f) //nolint:gosec // a test of this module
		return err == nil && bytes.Contains(data, []byte(`"pgregory.net/rapid"`))
	})
}

func (r *runner) golang(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // of the list, which stands beside the code
	cmd.Dir = r.root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // which go passes on to the tests
	cmd.WaitDelay = 5 * time.Second
	data, err := cmd.CombinedOutput()
	return string(data), err
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return "no output"
}
