// Command licenses prints the licences of everything that the program holds: of
// the Go modules that are linked into cmd/isobar, and of the npm packages that the
// console is built from. `make licenses` writes them to where they are embedded.
// It is run in the root of the repository, after `npm ci` in console.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// component is one module or package with what its authors want to be shown.
type component struct {
	name, version, dir string
}

// text is a licence with all that stand under the same words.
type text struct {
	of   []string
	body string
}

func run(ctx context.Context, w io.Writer) error {
	modules, err := goModules(ctx)
	if err != nil {
		return err
	}
	packages, err := npmPackages("console")
	if err != nil {
		return err
	}
	var texts []*text
	byBody := map[string]*text{}
	for _, c := range append(modules, packages...) {
		files, err := licencesOf(c.dir)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, body := range files {
			t := byBody[body]
			if t == nil {
				t = &text{body: body}
				byBody[body] = t
				texts = append(texts, t)
			}
			t.of = append(t.of, c.name+" "+c.version)
		}
	}
	return write(w, texts)
}

func write(w io.Writer, texts []*text) error {
	var b bytes.Buffer
	b.WriteString("Isobar itself is licensed under the Apache License 2.0. It holds the following, under the licences below.\n")
	for _, t := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(slices.Compact(t.of), "\n"), t.body)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// goModules lists the modules whose packages are linked, and the standard library.
func goModules(ctx context.Context) ([]component, error) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", format, "./cmd/isobar")
	// What is linked on the systems that are released, not on this one.
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	all := []component{{"The Go standard library", "", strings.TrimSpace(string(root))}}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			all = append(all, component{f[0], f[1], f[2]})
		}
	}
	slices.SortFunc(all[1:], func(a, b component) int { return cmp.Compare(a.name, b.name) })
	return slices.Compact(all), nil
}

// npmPackages lists what the build says that the bundle holds.
func npmPackages(dir string) ([]component, error) {
	var manifest struct {
		Bundled []string `json:"bundled"`
	}
	if err := read(filepath.Join(dir, "package.json"), &manifest); err != nil {
		return nil, err
	}
	var all []component
	for _, name := range manifest.Bundled {
		of := filepath.Join(dir, "node_modules", filepath.FromSlash(name))
		var p struct {
			Version string `json:"version"`
		}
		if err := read(filepath.Join(of, "package.json"), &p); err != nil {
			return nil, err
		}
		all = append(all, component{name, p.Version, of})
	}
	return all, nil
}

func read(file string, v any) error {
	data, err := os.ReadFile(file) //nolint:gosec // of this repository
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|patents)([.-].*)?$`)

// licencesOf reads the licences and notices in the root of a module. One without
// any is an error: nobody may pass it on.
func licencesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name())) //nolint:gosec // of a module that we link
		if err != nil {
			return nil, err
		}
		body := strings.ReplaceAll(string(data), "\r\n", "\n")
		out = append(out, strings.Trim(body, "\n"))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no licence in %s", dir)
	}
	return out, nil
}
