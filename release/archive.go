package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive; data nil = a directory.
type entry struct {
	name string
	mode int64
	data []byte
	uid  int // owner and group
}

// pack makes a tar archive, sorted, with directories before what is in them.
func pack(entries []entry, at time.Time) ([]byte, error) {
	entries = slices.Clone(entries)
	has := map[string]bool{}
	for _, e := range entries {
		has[strings.TrimSuffix(e.name, "/")] = true
	}
	for _, e := range slices.Clone(entries) {
		for dir := path.Dir(strings.TrimSuffix(e.name, "/")); dir != "." && dir != "/" && !has[dir]; dir = path.Dir(dir) {
			has[dir] = true
			entries = append(entries, entry{name: dir, mode: 0o755})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Typeflag: tar.TypeReg, Uid: e.uid, Gid: e.uid, Format: tar.FormatUSTAR}
		if e.data == nil {
			h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(e.name, "/")+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// zipped compresses without a name and a time.
func zipped(data []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// documents are what each archive and package has beside the program.
func (r *release) documents(under string) ([]entry, error) {
	var out []entry
	for _, name := range []string{"LICENSE", "THIRD_PARTY_LICENSES", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return nil, err
		}
		out = append(out, entry{name: path.Join(under, name), mode: 0o644, data: data})
	}
	return out, nil
}

// makeArchive makes the archive of a platform.
func (r *maker) makeArchive(p platform, binary []byte, t *texts) ([]byte, error) {
	root := strings.TrimSuffix(r.archive(p), ".tar.gz")
	entries, err := r.documents(root)
	if err != nil {
		return nil, err
	}
	entries = append(entries, entry{name: root + "/isobar", mode: 0o755, data: binary})
	for shell, text := range t.completions {
		entries = append(entries, entry{name: root + "/completions/isobar." + shell, mode: 0o644, data: text})
	}
	for name, text := range t.manuals {
		entries = append(entries, entry{name: root + "/man/" + name, mode: 0o644, data: text})
	}
	if p.os == "linux" {
		units, err := r.tree("deploy/systemd", root+"/systemd")
		if err != nil {
			return nil, err
		}
		entries = append(entries, units...)
	}
	return zipped(pack(entries, r.date))
}

// tree returns the files beneath a directory of the sources.
func (r *release) tree(dir, under string) ([]entry, error) {
	var out []entry
	base := filepath.Join(r.source, filepath.FromSlash(dir))
	err := filepath.WalkDir(base, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, name)
		out = append(out, entry{name: path.Join(under, filepath.ToSlash(rel)), mode: 0o644, data: data})
		return err
	})
	return out, err
}

// makeChart makes the Helm chart with the version of the release.
func (r *maker) makeChart() ([]byte, error) {
	entries, err := r.tree("deploy/helm/isobar", "isobar")
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return strings.HasPrefix(e.name, "isobar/ci/") })
	for i := range entries {
		if entries[i].name != "isobar/Chart.yaml" {
			continue
		}
		var b bytes.Buffer
		for line := range strings.Lines(string(entries[i].data)) {
			switch {
			case strings.HasPrefix(line, "version:"):
				line = fmt.Sprintf("version: %s\n", r.number())
			case strings.HasPrefix(line, "appVersion:"):
				line = fmt.Sprintf("appVersion: %q\n", r.number())
			}
			b.WriteString(line)
		}
		entries[i].data = b.Bytes()
	}
	return zipped(pack(entries, r.date))
}
