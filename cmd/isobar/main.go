// Command isobar is the management server and its tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/loadgen"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1 // of isobar status also: something needs attention
	exitUsage = 2
	// exitUnasked is that of isobar status where the server does not answer.
	exitUnasked = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, errorText(err))
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	_, wrong := errors.AsType[usageError](err)
	if wrong || errors.Is(err, checker.ErrOptions) || errors.Is(err, loadgen.ErrOptions) {
		return exitUsage
	}
	if _, unasked := errors.AsType[unaskedError](err); unasked {
		return exitUnasked
	}
	return exitError
}

// errorText is what is printed of an error. Errors of input begin with their
// file, line and column, so that editors find the place; others with who
// speaks.
func errorText(err error) string {
	if places, ok := errors.AsType[*config.Error](err); ok {
		return places.Error()
	}
	return "isobar: " + err.Error()
}
