package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maker makes the files of a release.
type maker struct{ *release }

// here is the platform that the checks can run programs of.
func here() platform { return platform{runtime.GOOS, runtime.GOARCH} }

// build builds the program. Nothing of the directory or of the machine gets into it.
func (r *maker) build(ctx context.Context, work string, p platform) ([]byte, error) {
	out := filepath.Join(work, "isobar-"+p.String())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X main.builtFrom=%s -X main.builtVersion=%s", r.commit, r.version), "-o", out, "./cmd/isobar")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=", "GOAMD64=v1", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building for %s: %w\n%s", p, err, text)
	}
	return os.ReadFile(out)
}

// texts are what the program prints about itself: completions by shell, and manual pages by
// the name of their file.
type texts struct {
	completions map[string][]byte
	manuals     map[string][]byte
}

func textsOf(ctx context.Context, program string, r *release) (*texts, error) {
	t := &texts{completions: map[string][]byte{}, manuals: map[string][]byte{}}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := exec.CommandContext(ctx, program, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion %s: %w", shell, err)
		}
		t.completions[shell] = out
	}
	return t, t.addManuals(ctx, program, nil, r)
}

// addManuals makes the page of a command and those of the commands beneath it, from
// their --help.
func (t *texts) addManuals(ctx context.Context, program string, command []string, r *release) error {
	help, err := exec.CommandContext(ctx, program, append(slices.Clone(command), "--help")...).Output()
	if err != nil {
		return fmt.Errorf("isobar %s --help: %w", strings.Join(command, " "), err)
	}
	name := strings.Join(append([]string{"isobar"}, command...), "-")
	t.manuals[name+".1"] = manual(name, string(help), r)
	for _, sub := range commandsOf(string(help)) {
		if sub == "help" || sub == "completion" {
			continue
		}
		if err := t.addManuals(ctx, program, append(slices.Clone(command), sub), r); err != nil {
			return err
		}
	}
	return nil
}

// otherHeadings are those of a help text that no commands stand under.
var otherHeadings = []string{"Usage:", "Aliases:", "Examples:", "Flags:", "Global Flags:"}

// commandsOf lists the commands of a help text: lines with two spaces before a name, under
// headings such as "Available Commands:".
func commandsOf(help string) []string {
	var out []string
	in := false
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case !strings.HasPrefix(line, " "):
			in = strings.HasSuffix(line, ":") && !slices.Contains(otherHeadings, line)
		case in && !strings.HasPrefix(line, "   "):
			out = append(out, strings.Fields(line)[0])
		}
	}
	return out
}

// manual turns a help text into a page of section 1: its first paragraph describes the
// command, each heading is a section.
func manual(name, help string, r *release) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 %q \"isobar %s\" \"Isobar\"\n.SH NAME\n", strings.ToUpper(name), r.date.Format("2006-01-02"), r.number())
	first, _, _ := strings.Cut(help, "\n\n")
	summary, _, _ := strings.Cut(strings.Join(strings.Fields(first), " "), ". ")
	fmt.Fprintf(&b, "%s \\- %s\n.SH DESCRIPTION\n", name, roff(strings.TrimSuffix(summary, ".")))
	verbatim := false
	set := func(on bool) {
		if on != verbatim {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[on])
		}
		verbatim = on
	}
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			set(false)
			b.WriteString(".PP\n")
		case !strings.HasPrefix(line, " ") && strings.HasSuffix(line, ":"):
			set(false)
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(roff(strings.TrimSuffix(line, ":"))))
		default:
			set(strings.HasPrefix(line, " "))
			b.WriteString(roff(line) + "\n")
		}
	}
	set(false)
	return b.Bytes()
}

// roff escapes what a line of text can't have.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}

// writeChecksums lists the files as sha256sum does.
func (r *maker) writeChecksums(names []string) error {
	slices.Sort(names)
	var b bytes.Buffer
	for _, name := range names {
		data, err := os.ReadFile(r.file(name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(r.file("checksums.txt"), b.Bytes(), 0o644) //nolint:gosec // published
}

// make makes all files.
func (r *maker) make(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // they are published
		return err
	}
	work, err := os.MkdirTemp("", "isobar-release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	binaries := map[platform][]byte{}
	for _, p := range platforms {
		if binaries[p], err = r.build(ctx, work, p); err != nil {
			return err
		}
	}
	native := filepath.Join(work, "native")
	if err := os.WriteFile(native, binaries[here()], 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	texts, err := textsOf(ctx, native, r.release)
	if err != nil {
		return err
	}
	var names []string
	put := func(name string, data []byte, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		names = append(names, name)
		return os.WriteFile(r.file(name), data, 0o644) //nolint:gosec // published
	}
	for _, p := range platforms {
		data, err := r.makeArchive(p, binaries[p], texts)
		if err := put(r.archive(p), data, err); err != nil {
			return err
		}
		data, err = makeSBOM(r.release, p, binaries[p])
		if err := put(r.sbom(p), data, err); err != nil {
			return err
		}
		if p.os != "linux" {
			continue
		}
		data, err = r.makeDeb(p, binaries[p], texts)
		if err := put(r.deb(p), data, err); err != nil {
			return err
		}
	}
	data, err := r.makeChart()
	if err := put(r.chart(), data, err); err != nil {
		return err
	}
	data, err = r.makeImage(work, binaries)
	if err := put(r.image(), data, err); err != nil {
		return err
	}
	return r.writeChecksums(names)
}
