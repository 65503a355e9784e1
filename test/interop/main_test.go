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

var (
	update   = flag.Bool("update", false, "write docs/reference/compatibility.md instead of checking it")
	churnFor = flag.Duration("churn", 0, "play TestEnvoyChurn for so long, with the fleet of make interop-all")
)

// isobarPath is the program under test.
var isobarPath string

// TestMain builds Isobar, runs the tests and compares what they saw with the table
// in the documentation: cells of tests that did not run stand as they are.
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
	code := m.Run()
	if flag.Lookup("test.list").Value.String() != "" {
		return code
	}
	everything := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	if err := seen.compare("../../docs/reference/compatibility.md", *update, everything, interopAll()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
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
