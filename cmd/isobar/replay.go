package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
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
recorded one, byte for byte. If a plan differs, the command names the first one that
does, and the exit status is 1.

With -c or --set, the command also decides under another configuration or policy,
at the same demand and health, and compares both: utilization, mean latency, traffic
between zones and regions, drops, and moves. The services of -c replace the services
of the same names, and its network replaces the recorded one. A trace does not show
how clients would have reacted to other plans: demand and adherence of clients stay
as recorded.`,
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
	cmd.Flags().BoolVarP(&flags.quiet, "quiet", "q", false, "do not print a line for each plan")
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
		_, _ = fmt.Fprintf(stderr, "isobar: %s: %v; the intact part was replayed\n", file, err) // nobody to tell
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
		err = fmt.Errorf("%s: the replay differs: %s", file, r.Difference)
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
		bar.line(plural.Count(plans, "plan", "plans"), float64(reader.Offset())/float64(size))
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

// writeReplay prints a line for each plan, the comparison with another
// configuration, and the verdict.
func writeReplay(w io.Writer, r *replayReport, quiet bool) error {
	var b strings.Builder
	if !quiet && len(r.Plans) > 0 {
		writePlans(&b, r)
		b.WriteByte('\n')
	}
	if r.Total.WhatIf != nil {
		writeComparison(&b, "all services", r.Total)
		if len(r.Services) > 1 {
			for _, name := range slices.Sorted(maps.Keys(r.Services)) {
				if c := r.Services[name]; c.WhatIf != nil && *c.WhatIf != c.Decided {
					writeComparison(&b, printable(name), c)
				}
			}
		}
	}
	writeVerdict(&b, r)
	_, err := io.WriteString(w, b.String())
	return err
}

func writePlans(b *strings.Builder, r *replayReport) {
	heads := []string{"TIME", "PLAN", "BY", "DEMAND/S", "LATENCY", "FULLEST", "MOVED/S", "SHED/S"}
	what := r.Total.WhatIf != nil
	if what {
		heads = append(heads, "| LATENCY", "FULLEST", "MOVED/S", "SHED/S")
	}
	columns := make([]column, len(heads)+1) // and notes
	for i, head := range heads {
		columns[i].head = head
	}
	for i := range r.Plans {
		p := &r.Plans[i]
		cells := []string{p.At.Format(time.TimeOnly), fmt.Sprint(p.Version), p.How, fmt.Sprintf("%.1f", p.Decided.Demand)}
		cells = append(cells, p.Decided.cells("")...)
		if what {
			m := momentary{}
			if p.WhatIf != nil {
				m = *p.WhatIf
			}
			cells = append(cells, m.cells("| ")...)
		}
		note := ""
		switch {
		case !p.Same:
			note = "differs"
		case p.Failed != "":
			note = "planning failed: " + printable(p.Failed)
		}
		for j, cell := range append(cells, note) {
			columns[j].cells = append(columns[j].cells, cell)
		}
	}
	writeColumns(b, columns)
}

func (m *momentary) cells(before string) []string {
	return []string{before + millis(m.Latency), percent(m.Fullest), fmt.Sprintf("%.1f", m.Moved), fmt.Sprintf("%.1f", m.Shed)}
}

func writeComparison(b *strings.Builder, of string, c comparison) {
	columns := []column{{head: of}, {head: "DECIDED"}, {head: "WHAT IF"}}
	row := func(name string, cell func(*summary) string) {
		for i, text := range []string{"  " + name, cell(&c.Decided), cell(c.WhatIf)} {
			columns[i].cells = append(columns[i].cells, text)
		}
	}
	row("mean latency", func(s *summary) string { return millis(s.Latency) })
	row("fullest locality, mean", func(s *summary) string { return percent(s.FullestMean) })
	row("fullest locality, worst", func(s *summary) string { return percent(s.Fullest) + " " + s.Where })
	row("ticks above a ceiling", func(s *summary) string { return percent(s.Over) })
	row("to other zones", func(s *summary) string { return percent(s.CrossZone) })
	row("to other regions", func(s *summary) string { return percent(s.CrossRegion) })
	row("dropped", func(s *summary) string { return percent(s.Shed) })
	row("moved per tick", func(s *summary) string { return fmt.Sprintf("%.2f%%", 100*s.Moved) })
	writeColumns(b, columns)
	b.WriteByte('\n')
}

func writeVerdict(b *strings.Builder, r *replayReport) {
	if len(r.Plans) == 0 {
		b.WriteString("the trace holds no plan\n")
		return
	}
	fmt.Fprintf(b, "%s of %s by isobar %s: %s, %d carried over, %d rolled back in %s\n",
		plural.Count(r.plans(), "plan", "plans"), plural.Count(r.Recordings, "recording", "recordings"), printable(r.Isobar),
		plural.Count(r.Decided[replay.HowTick], "tick", "ticks"), r.Decided[replay.HowReapply], r.Decided[replay.HowRollback], r.To.Sub(r.From).Round(time.Second))
	if r.Same {
		b.WriteString("all of them are reproduced, byte for byte\n")
		return
	}
	fmt.Fprintf(b, "%d of them differ\n", r.Differ)
}
