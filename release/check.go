package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// checker checks the files of a release.
type checker struct{ *release }

// check checks all files of a release: each is unpacked, and what this machine can run
// is run.
func (r *checker) check(ctx context.Context, out io.Writer) error {
	work, err := os.MkdirTemp("", "isobar-release-check")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, c := range []struct {
		what  string
		check func(ctx context.Context, work string) error
	}{
		{"checksums", r.checkChecksums}, {"archives", r.checkArchives}, {"bills of materials", r.checkSBOMs}, {"Debian packages", r.checkDebs},
		{"Helm chart", r.checkChart}, {"image", r.checkImage}, {"go install", r.checkInstall},
	} {
		dir := filepath.Join(work, strings.ReplaceAll(c.what, " ", "-"))
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // another user runs the image
			return err
		}
		if err := c.check(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		_, _ = fmt.Fprintln(out, "ok  ", c.what)
	}
	return nil
}

// checkChecksums compares each file with checksums.txt, which has to list them all.
func (r *checker) checkChecksums(context.Context, string) error {
	list, err := os.ReadFile(r.file("checksums.txt"))
	if err != nil {
		return err
	}
	listed := map[string]bool{"checksums.txt": true}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(r.file(name))
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
			return fmt.Errorf("%s has %s, not %s", name, got, sum)
		}
		listed[name] = true
	}
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !listed[f.Name()] {
			return fmt.Errorf("%s is not listed", f.Name())
		}
	}
	if len(listed) != 2*len(platforms)+5 {
		return fmt.Errorf("%d files are listed", len(listed))
	}
	return nil
}

// unpack reads a tar archive.
func unpack(data []byte) (map[string]entry, error) {
	var from io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, err
		}
		from = z
	}
	out := map[string]entry{}
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeDir {
			data = nil
		}
		name := path.Clean(h.Name)
		out[name] = entry{name: name, mode: h.Mode, data: data, uid: h.Uid}
	}
}

// write puts entries into a directory, with the owners that they name.
func write(dir string, entries map[string]entry) error {
	for _, e := range entries {
		at := filepath.Join(dir, filepath.FromSlash(e.name))
		if e.data == nil {
			if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // as in the archive
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // as in the archive
			return err
		}
		if err := os.WriteFile(at, e.data, os.FileMode(e.mode)); err != nil { //nolint:gosec // a few permission bits
			return err
		}
	}
	for _, e := range entries {
		if e.uid != 0 && os.Getuid() == 0 {
			if err := os.Chown(filepath.Join(dir, filepath.FromSlash(e.name)), e.uid, e.uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkArchives checks the program of each platform, and runs the one of this machine.
func (r *checker) checkArchives(ctx context.Context, work string) error {
	for _, p := range platforms {
		data, err := os.ReadFile(r.file(r.archive(p)))
		if err != nil {
			return err
		}
		files, err := unpack(data)
		if err != nil {
			return fmt.Errorf("%s: %w", r.archive(p), err)
		}
		root := strings.TrimSuffix(r.archive(p), ".tar.gz") + "/"
		for _, name := range []string{
			"isobar", "LICENSE", "THIRD_PARTY_LICENSES", "README.md", "completions/isobar.bash", "completions/isobar.zsh", "completions/isobar.fish",
			"man/isobar.1", "man/isobar-serve.1", "man/isobar-kubernetes-analyze.1",
		} {
			if len(files[root+name].data) == 0 {
				return fmt.Errorf("%s does not have %s", r.archive(p), name)
			}
		}
		if err := r.checkProgram(p, files[root+"isobar"].data); err != nil {
			return fmt.Errorf("%s: %w", r.archive(p), err)
		}
		if p != here() {
			continue
		}
		if err := write(work, files); err != nil {
			return err
		}
		if err := r.checkRuns(ctx, filepath.Join(work, root, "isobar")); err != nil {
			return err
		}
		if err := checkTexts(ctx, filepath.Join(work, root)); err != nil {
			return err
		}
	}
	return nil
}

// checkProgram asserts what a program prints about its build.
func (r *checker) checkProgram(p platform, binary []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, s := range info.Settings {
		got[s.Key] = s.Value
	}
	for key, want := range map[string]string{"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0", "-trimpath": "true"} {
		if got[key] != want {
			return fmt.Errorf("built with %s=%s, want %s", key, got[key], want)
		}
	}
	for _, want := range []string{r.version, r.commit} {
		if !bytes.Contains(binary, []byte(want)) {
			return fmt.Errorf("the program does not have %s", want)
		}
	}
	if bytes.Contains(binary, []byte(r.source+"/")) {
		return fmt.Errorf("the program has the path of its sources, %s", r.source)
	}
	return nil
}

// checkRuns asserts that a program tells its version and its commit.
func (r *checker) checkRuns(ctx context.Context, program string) error {
	out, err := exec.CommandContext(ctx, program, "version", "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	var b struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
	}
	if err := json.Unmarshal(out, &b); err != nil {
		return err
	}
	if b.Version != r.version || b.Commit != r.commit {
		return fmt.Errorf("%s tells %s", program, out)
	}
	return nil
}

// checkTexts asserts that a shell and the formatter of manual pages take what an archive
// has for them.
func checkTexts(ctx context.Context, dir string) error {
	if out, err := exec.CommandContext(ctx, "bash", "-n", filepath.Join(dir, "completions", "isobar.bash")).CombinedOutput(); err != nil {
		return fmt.Errorf("completions of bash: %w: %s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
	if err != nil || len(pages) < 20 {
		return fmt.Errorf("%d manual pages: %w", len(pages), err)
	}
	for _, page := range pages {
		cmd := exec.CommandContext(ctx, "groff", "-man", "-Tutf8", "-P-cbu", "-ww", page) // without overstrikes
		var warnings bytes.Buffer
		cmd.Stderr = &warnings
		out, err := cmd.Output()
		if err != nil || warnings.Len() > 0 || !bytes.Contains(out, []byte("DESCRIPTION")) {
			return fmt.Errorf("%s: %w: %s", filepath.Base(page), err, warnings.String())
		}
	}
	return nil
}

// checkSBOMs asserts that each lists the modules of its program with their hashes.
func (r *checker) checkSBOMs(context.Context, string) error {
	for _, p := range platforms {
		data, err := os.ReadFile(r.file(r.sbom(p)))
		if err != nil {
			return err
		}
		var s spdx
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		ids, found := map[string]bool{}, false
		for _, q := range s.Packages {
			if ids[q.ID] || q.Version == "" {
				return fmt.Errorf("%s: package %+v", r.sbom(p), q)
			}
			ids[q.ID] = true
			found = found || q.Name == "google.golang.org/grpc" && len(q.External) == 2
		}
		if !found || len(s.Relationships) != len(s.Packages) {
			return fmt.Errorf("%s: %d packages, %d relationships", r.sbom(p), len(s.Packages), len(s.Relationships))
		}
	}
	return nil
}

// checkDebs unpacks the packages with Debian's own program.
func (r *checker) checkDebs(ctx context.Context, work string) error {
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		deb := r.file(r.deb(p))
		field, err := exec.CommandContext(ctx, "dpkg-deb", "--field", deb, "Package", "Architecture").Output()
		if err != nil || string(field) != "Package: isobar\nArchitecture: "+p.arch+"\n" {
			return fmt.Errorf("%s: %w: %s", r.deb(p), err, field)
		}
		dir := filepath.Join(work, p.arch)
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--raw-extract", deb, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", r.deb(p), err, out)
		}
		for _, name := range []string{"isobar.service", "isobar-checker.service"} {
			unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system", name))
			if err != nil {
				return err
			}
			if !bytes.Contains(unit, []byte("\nExecStart=/usr/bin/isobar ")) {
				return fmt.Errorf("%s: the unit %s starts something else", r.deb(p), name)
			}
		}
		for _, script := range []string{"postinst", "prerm"} {
			if out, err := exec.CommandContext(ctx, "sh", "-n", filepath.Join(dir, "DEBIAN", script)).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", script, err, out)
			}
		}
		if p == here() {
			if err := r.checkRuns(ctx, filepath.Join(dir, "usr/bin/isobar")); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkChart asserts that the chart has the version of the release.
func (r *checker) checkChart(context.Context, string) error {
	data, err := os.ReadFile(r.file(r.chart()))
	if err != nil {
		return err
	}
	files, err := unpack(data)
	if err != nil {
		return err
	}
	about := string(files["isobar/Chart.yaml"].data)
	if !strings.Contains(about, "\nversion: "+r.number()+"\n") || !strings.Contains(about, fmt.Sprintf("\nappVersion: %q\n", r.number())) {
		return fmt.Errorf("the chart has another version:\n%s", about)
	}
	for _, name := range []string{"values.yaml", "values.schema.json", "templates/server.yaml", "files/crds/isobar.dev_loadbalancingpolicies.yaml"} {
		if len(files["isobar/"+name].data) == 0 {
			return fmt.Errorf("the chart does not have %s", name)
		}
	}
	return nil
}
