package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// enough is the share of the bugs that tests have to notice.
const enough = 0.9

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(out)
	root := flags.String("root", ".", "the module's root")
	lists := flags.String("bugs", "test/mutants/bugs", "the directory of the lists, relative to the root")
	pattern := flags.String("run", "", "take only bugs whose name matches this regular expression")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long the tests of one package may take; a bug that makes them hang is noticed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("mutants: -run: %w", err)
	}
	all, err := readLists(filepath.Join(*root, *lists))
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if wanted.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("mutants: no bug's name matches %q", *pattern)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing depends on it
	r := &runner{root: *root, dir: dir, timeout: *timeout, out: out}
	if err := r.sound(ctx, chosen); err != nil {
		return err
	}
	results := r.all(ctx, chosen)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	return verdict(out, results)
}
