// Command picture runs isobar demo and draws what it printed: the p99 latency and the
// failed requests with plain locality failover and with Isobar, by the second. It writes
// no picture if the demo fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("picture", flag.ContinueOnError)
	program := flags.String("isobar", "bin/isobar", "the program")
	path := flags.String("o", "docs/demo.svg", "the picture")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var printed strings.Builder
	demo := exec.CommandContext(ctx, *program, "demo", "--plain") //nolint:gosec // the program is a flag
	demo.Stdout, demo.Stderr = io.MultiWriter(stdout, &printed), os.Stderr
	if err := demo.Run(); err != nil {
		return fmt.Errorf("%s demo: %w", *program, err)
	}
	runs, err := read(printed.String())
	if err != nil {
		return err
	}
	const mode = 0o644
	return os.WriteFile(*path, []byte(draw(runs)), mode)
}
