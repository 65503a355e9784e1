package interop

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/compatibility.md instead of checking it")

// isobarPath is the program under test.
var isobarPath string

// TestMain builds Isobar, runs the tests and, when all of them ran and passed,
// compares what was seen with the table in the documentation.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "isobar-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	isobarPath = filepath.Join(dir, "isobar")
	if err := command(context.Background(), "../..", "go", "build", "-o", isobarPath, "./cmd/isobar"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.list").Value.String() != "" {
		return 0 // not all clients were there
	}
	if err := seen.compare("../../docs/reference/compatibility.md", *update); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// command runs a program to its end; its output is in the error.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v in %s: %w\n%s", name, args, dir, err, out)
	}
	return nil
}
