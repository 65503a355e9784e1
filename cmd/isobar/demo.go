package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/grpclog"

	"github.com/isobar-xds/isobar/internal/fleet"
)

// demoFlags are the flags of `isobar demo`.
type demoFlags struct {
	keep  bool
	json  bool
	plain bool
}

// errDemo says that the demo ran, but that Isobar did not do its work.
var errDemo = errors.New("the demo failed")

func demoCommand(start fleet.StartManagement) *cobra.Command {
	var flags demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole loop on this machine: real gRPC backends and clients, a load step, the loss of a zone",
		Long: `Show the whole loop on this machine, on loopback, without any set-up.

Four zones in two regions run real gRPC backends with limited concurrency, and
real grpc-go xDS clients that send them requests over connections as slow as the
distance. The fleet goes through a load step in one zone and the loss of another
twice: with plain locality failover (mode observe), then with Isobar (mode
full). A table shows what happens; the verdict sets both beside each other.

The exit status is 0 only if the fleet settled under Isobar both times, and
served all that capacity allows. It takes less than 90 seconds.`,
		Example: "  isobar demo\n  isobar demo --keep     # leave it running, to look around\n  isobar demo --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), flags, fleet.DefaultScenario(), start, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&flags.keep, "keep", false, "leave the fleet running after the verdict, until interrupted")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the verdict as JSON; progress goes to standard error")
	cmd.Flags().BoolVar(&flags.plain, "plain", false, "print progress as plain lines even on a terminal")
	return cmd
}

func runDemo(ctx context.Context, flags demoFlags, s fleet.Scenario, start fleet.StartManagement, stdout, stderr io.Writer) error {
	// A zone that dies makes grpc-go log errors, and it is meant to die.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	progress := stdout
	if flags.json {
		progress = stderr
	}
	var v fleet.Verdict
	var kept *fleet.Run
	play := func(ctx context.Context, frame func(fleet.Frame)) (err error) {
		v, kept, err = fleet.Compare(ctx, s, start, frame, flags.keep)
		return err
	}
	show := playPlain
	if !flags.plain && isTerminal(progress) {
		show = playLive
	}
	if err := show(ctx, progress, play); err != nil {
		return err
	}
	if err := printVerdict(stdout, &v, flags.json); err != nil {
		return errors.Join(err, closeRun(kept))
	}
	if kept != nil {
		fmt.Fprintf(progress, "\nThe fleet goes on. Admin API: http://%s (try /v1/plan, /v1/clients, /metrics). Interrupt to end.\n", kept.Admin())
		<-ctx.Done()
	}
	if err := closeRun(kept); err != nil {
		return err
	}
	if !v.OK {
		return errDemo
	}
	return nil
}

func closeRun(r *fleet.Run) error {
	if r == nil {
		return nil
	}
	return r.Close()
}

func printVerdict(w io.Writer, v *fleet.Verdict, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, "\n"+verdictText(v))
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// playPlain prints one line a second.
func playPlain(ctx context.Context, w io.Writer, play func(context.Context, func(fleet.Frame)) error) error {
	return play(ctx, func(f fleet.Frame) { fmt.Fprintln(w, frameLine(&f)) })
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // file descriptors are small
}
