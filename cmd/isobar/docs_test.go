package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocumentedCommands parses every command line of this program that stands
// in a code block of the documents, in a unit or manifest of deploy/, or among
// the examples of the help: commands, flags and arguments have to be such as the
// program takes.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for name, data := range documents(t) {
		for _, line := range commandLines(name, data) {
			found++
			if err := parses(line); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	for name, data := range documents(t) {
		for _, m := range inline.FindAllStringSubmatch(data, -1) {
			if err := mentions(m[1]); err != nil {
				t.Errorf("%s: `%s`: %v", name, m[1], err)
			}
		}
	}
	for _, cmd := range allCommands(newRoot()) {
		for line := range strings.Lines(cmd.Example) {
			for _, call := range calls(line) {
				found++
				if err := parses(call); err != nil {
					t.Errorf("help of %s: %s: %v", cmd.CommandPath(), call, err)
				}
			}
		}
	}
	if found < 90 {
		t.Errorf("only %d commands found: have the documents changed their form? Mend this test", found)
	}
}

// TestHelpIsWhole: every command says what it does and, but for those that only
// hold others, gives an example; every flag says what it is for.
func TestHelpIsWhole(t *testing.T) {
	for _, cmd := range allCommands(newRoot()) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short text %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Example == "" && !cmd.HasSubCommands() && cmd.Name() != "help" && cmd.Name() != "version" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
			if words := strings.Fields(line); len(words) < 4 {
				t.Errorf("%s: a flag without an explanation: %s", cmd.CommandPath(), line)
			}
		}
	}
}

// TestHelpOfNothing: what does not exist has no help.
func TestHelpOfNothing(t *testing.T) {
	for _, args := range [][]string{{"help", "nosuch"}, {"help", "health", "nosuch"}, {"help", "solve", "x"}} {
		err := run(t.Context(), args, io.Discard, io.Discard)
		if exitCode(err) != exitUsage || !strings.Contains(fmt.Sprint(err), "unknown command") {
			t.Errorf("%v: %v", args, err)
		}
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"help", "health", "set"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "--force") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestCalledWrongly: the exit status tells it from what goes wrong later.
func TestCalledWrongly(t *testing.T) {
	for _, args := range [][]string{
		{"bootstrap", "envoy", "--locality", "us/a", "--initial-fetch-timeout", "-1s"},
		{"bootstrap", "envoy", "--locality", "us/a", "--listener", "http"},
		{"bootstrap", "envoy", "--locality", "us/a", "--listener", "10000", "--beside"},
		{"bootstrap", "envoy", "--locality", "us/a", "--service", "isobar"},
		{"bootstrap", "envoy", "--locality", "us/a", "--service", " "},
		{"bootstrap", "envoy", "--locality", "us/a", "--beside", "--service", "web"},
		{"bootstrap", "envoy", "--locality", "us/a", "--tls"},
		{"bootstrap", "grpc", "--locality", "us/a", "--beside", "--authority", "a/b"},
		{"bootstrap", "grpc", "--locality", "us/a", "--cert", "c.pem"},
		{"bootstrap", "grpc", "--locality", "us"},
		{"bootstrap", "grpc", "--locality", "us/a", "--server", "localhost"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); exitCode(err) != exitUsage {
			t.Errorf("%v: exit status %d: %v", args, exitCode(err), err)
		}
	}
}

// documents are the texts that show commands, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*/*", "examples/*.md"} {
		names, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				continue
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(data)
		}
	}
	return out
}

// commandLines finds this program's calls in a document: in Markdown those in
// blocks, which are fenced or indented by four spaces, elsewhere those of
// ExecStart.
func commandLines(name, data string) (out []string) {
	data = strings.ReplaceAll(data, "\\\n", " ") // continued lines
	fenced := false
	for line := range strings.Lines(data) {
		line = strings.TrimRight(line, "\n")
		if filepath.Ext(name) == ".service" {
			if call, ok := strings.CutPrefix(line, "ExecStart=/usr/local/bin/"); ok {
				out = append(out, call)
			}
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if filepath.Ext(name) == ".md" && (fenced || strings.HasPrefix(line, "    ")) {
			out = append(out, calls(line)...)
		}
	}
	return out
}

var (
	comment = regexp.MustCompile(`(^|\s)#.*`)
	call    = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:go run )?(?:\./|/usr/local/bin/)?(?:cmd/)?isobar +([a-z-].*)$`)
	inline  = regexp.MustCompile("`(isobar [a-z][^`\n]*)`")
	word    = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	redirec = regexp.MustCompile(`\s[0-9]?[<>]\S*( \S+)?`)
)

// calls returns the arguments of this program's calls in a line of shell.
func calls(line string) (out []string) {
	line = strings.TrimPrefix(strings.TrimSpace(comment.ReplaceAllString(line, "")), "until ")
	for _, part := range regexp.MustCompile(`[|;&]+`).Split(line, -1) {
		if m := call.FindStringSubmatch(strings.TrimSpace(part)); m != nil {
			out = append(out, "isobar "+redirec.ReplaceAllString(m[1], ""))
		}
	}
	return out
}

// parses says what is wrong with a call, as far as that can be told without
// running it.
func parses(line string) error {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	markUsage(root)
	args := word.FindAllString(line, -1)[1:]
	for i, w := range args {
		args[i] = strings.Trim(w, `'"`)
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return cmd.ValidateRequiredFlags()
}

// mentions says what is wrong with a command that the text speaks of: it may lack
// arguments, but command and flags have to exist.
func mentions(text string) error {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	words := strings.Fields(text)[1:]
	if strings.Contains(text, "|") { // several commands
		return nil
	}
	cmd, _, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd == root {
		return knownCommand(root, words)
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		if name, _, _ = strings.Cut(name, "="); isFlag && name != "" && cmd.Flags().Lookup(name) == nil {
			return fmt.Errorf("no flag --%s", name)
		}
	}
	return nil
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		out = append(out, allCommands(sub)...)
	}
	return out
}
