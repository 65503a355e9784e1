package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// installing lets one test at a time install, so that none finds the half of
// what another one puts there.
var installing sync.Mutex

// cached returns a directory of the user's cache that install has filled for
// exactly these contents; it is filled once.
func cached(t *testing.T, name string, contents []byte, install func(ctx context.Context, dir string) error) string {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(contents)
	dir := filepath.Join(cache, "isobar-interop", name+"-"+hex.EncodeToString(sum[:6]))
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := install(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goTool installs a Go program at a version and returns its path.
func goTool(t *testing.T, pkg, version string) string {
	t.Helper()
	at := pkg + "@" + version
	dir := cached(t, filepath.Base(pkg)+"-"+version, []byte(at), func(ctx context.Context, dir string) error {
		cmd := exec.CommandContext(ctx, "go", "install", at)
		cmd.Dir = dir // outside of any module
		cmd.Env = append(os.Environ(), "GOBIN="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go install %s: %w\n%s", at, err, out)
		}
		return nil
	})
	return filepath.Join(dir, filepath.Base(pkg))
}

// nodeModules installs what the lock file of the Node client names.
func nodeModules(t *testing.T) string {
	t.Helper()
	files := []string{"package.json", "package-lock.json", ".npmrc"}
	var all []byte
	for _, f := range files {
		all = append(all, read(t, filepath.Join("clients/node", f))...)
	}
	dir := cached(t, "node", all, func(ctx context.Context, dir string) error {
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join("clients/node", f))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, f), data, 0o600); err != nil {
				return err
			}
		}
		return command(ctx, dir, "npm", "ci", "--ignore-scripts")
	})
	return filepath.Join(dir, "node_modules")
}

// pythonPackages installs what the requirements of the Python client pin.
func pythonPackages(t *testing.T) string {
	t.Helper()
	const list = "clients/python/requirements.txt"
	return cached(t, "python", read(t, list), func(ctx context.Context, dir string) error {
		return command(ctx, ".", "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--require-hashes", "--only-binary", ":all:", "--no-deps", "--target", dir, "--requirement", list)
	})
}

// java returns a program of clients/java, compiled, with its arguments. Maven
// fetches the jars of grpc-java.
func java(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	const pom = "clients/java/pom.xml"
	jars := filepath.Join(cached(t, "java", read(t, pom), func(ctx context.Context, dir string) error {
		return command(ctx, ".", "mvn", "--batch-mode", "--quiet", "--file", pom, "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "jars"))
	}), "jars", "*")
	sources, err := filepath.Glob("clients/java/*.java")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources in clients/java: %v", err)
	}
	contents := read(t, pom)
	for _, source := range sources {
		contents = append(contents, read(t, source)...)
	}
	classes := cached(t, "java-classes", contents, func(ctx context.Context, dir string) error {
		return command(ctx, ".", "javac", append([]string{"--release", "17", "-d", dir, "-classpath", jars}, sources...)...)
	})
	args = append([]string{"-Xmx256m", "-classpath", classes + string(filepath.ListSeparator) + jars, program}, args...)
	return exec.CommandContext(context.Background(), "java", args...)
}

// compiled builds a program of clients/cpp against the system's gRPC.
func compiled(t *testing.T, program string) string {
	t.Helper()
	source := "clients/cpp/" + program + ".cc"
	ask := func(what string) string {
		out, err := exec.CommandContext(t.Context(), "pkg-config", what, "grpc++").Output()
		if err != nil {
			t.Fatalf("pkg-config %s grpc++: %v; install libgrpc++-dev and pkg-config", what, err)
		}
		return strings.TrimSpace(string(out))
	}
	version, libs := ask("--modversion"), ask("--libs")
	dir := cached(t, "cpp-"+program+"-"+version, append(read(t, source), libs...), func(ctx context.Context, dir string) error {
		args := append([]string{"-std=c++17", "-O1", "-o", filepath.Join(dir, program), source}, strings.Fields(libs)...)
		return command(ctx, ".", "g++", args...)
	})
	return filepath.Join(dir, program)
}

// builds are the programs that this run has built, by package.
var builds sync.Map

// built builds a program with the grpc-go that this module requires, once in a run.
func built(t *testing.T, program string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(isobarPath), filepath.Base(program))
	build, _ := builds.LoadOrStore(program, sync.OnceValue(func() error {
		return command(context.Background(), ".", "go", "build", "-o", path, program)
	}))
	if err := build.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
