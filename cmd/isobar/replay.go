package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/replay"
)

// replayFlags are the flags of `isobar replay`.
type replayFlags struct {
	output outputFormat
	config string
	set    []string
	quiet  bool
}

func replayCommand() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Repeat the decisions of a recording, under the same or another configuration",
		Long: `Repeat all decisions of a trace of "isobar record". Every plan must equal the
recorded one, byte for byte; the command names the first that differs, and the exit
status is 1.

With -c or --set, the command also decides under another configuration or policy,
at the same demand and health, and compares both: utilization, mean latency, traffic
between zones and regions, drops, and how much moves. The services of -c replace the
services of the same names, and its network replaces the recorded one. A trace does
not contain what clients would have done under other plans: demand and adherence of
clients stay as recorded.`,
		Example: "  isobar replay monday.trace\n  isobar replay monday.trace -c changed.yaml\n" +
			"  isobar replay monday.trace --set policy=waterfall-by-region --set checkout:max_shed=0.2",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			other, err := flags.change(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return playTrace(cmd.Context(), args[0], &flags, other, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.output.register(cmd)
	cmd.Flags().StringVarP(&flags.config, "config", "c", "", "configuration file to decide with for comparison; - is standard input")
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "setting to decide with for comparison, as KEY=VALUE or SERVICE:KEY=VALUE; repeatable")
	cmd.Flags().BoolVarP(&flags.quiet, "quiet", "q", false, "no line for each plan")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json") // fails only for a flag that is not there
	return cmd
}

// playTrace plays a trace and reports. It fails where a plan is not the one that
// was recorded.
func playTrace(ctx context.Context, file string, flags *replayFlags, other *otherSide, stdout, stderr io.Writer) error {
	in, err := os.Open(file) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	r := newReplayReport()
	err = play(ctx, in, other.change, stderr, r.take)
	if errors.Is(err, replay.ErrCut) {
		r.Cut = err.Error()
		_, _ = fmt.Fprintf(stderr, "isobar: %s: %v; what is whole was replayed\n", file, err) // nobody to tell
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err = other.unmet(); err != nil {
		return usageError{err}
	}
	r.finish()
	if flags.output == outputJSON {
		err = writeJSON(stdout, r)
	} else {
		err = writeReplay(stdout, r, flags.quiet)
	}
	if err == nil && r.Difference != "" {
		err = fmt.Errorf("%s: not the same: %s", file, r.Difference)
	}
	return err
}

// topologyChange is another configuration instead of a recorded one.
type topologyChange = func(*isobar.Topology) *isobar.Topology

// played is a step of a trace and, unless what is nil, what would have been
// decided in its place.
type played struct {
	*replay.Step

	about      replay.About
	recordings int
	what       *whatStep
}

type whatStep struct{ step replay.Step }

// play gives each step of a trace to take.
func play(ctx context.Context, in *os.File, change topologyChange, stderr io.Writer, take func(*played)) error {
	size := int64(1)
	if info, err := in.Stat(); err == nil {
		size = max(size, info.Size())
	}
	bar := newProgressBar(stderr, 1)
	defer bar.clear()
	reader, err := replay.NewReader(in, replay.ReaderOptions{})
	if err != nil {
		return err
	}
	player := replay.NewPlayer(reader)
	var what *replay.WhatIf
	if change != nil {
		what = replay.NewWhatIf(change)
	}
	for plans := 1; ctx.Err() == nil; plans++ {
		step, err := player.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p := &played{Step: step, about: player.About(), recordings: player.Segments()}
		if what != nil {
			if p.what, err = instead(what, step); err != nil {
				return fmt.Errorf("under the other configuration, at %s: %w", step.Now.UTC().Format(time.RFC3339), err)
			}
		}
		take(p)
		bar.line(count(plans, "plan", "plans"), float64(reader.Offset())/float64(size))
	}
	return ctx.Err()
}

// instead decides a step under the other configuration.
func instead(what *replay.WhatIf, step *replay.Step) (*whatStep, error) {
	before, next, err := what.Next(step)
	if err != nil {
		return nil, err
	}
	out := &whatStep{*step}
	out.step.Before, out.step.Plan = before, next
	return out, nil
}
