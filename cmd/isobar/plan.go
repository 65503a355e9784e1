package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

func planCommand() *cobra.Command {
	var flags remoteFlags
	file := defaultConfig
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Show the effect of a changed configuration file on shares, without publishing anything",
		Long: `Ask a running server for the effect of another configuration file: shares and
utilization now, after the first tick, and after convergence, at present
demand and health. The server publishes nothing. Services of the API do not change.
Paused and held services stay paused and held. The first line is the verdict:
whether a locality exceeds its ceiling after the first tick or at the end,
whether clients drop more requests or have no endpoint left, and whether the mean
latency of a service rises by more than 5% and 1 ms.`,
		Example: "  isobar plan -c new.yaml\n  isobar plan -c new.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readConfigFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			// Every error at its place, as isobar check tells them.
			_, warnings, err := config.Decode(inputName(file), data)
			printWarnings(cmd.ErrOrStderr(), warnings)
			if err != nil {
				return err
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			out, err := remote.Preview(cmd.Context(), data)
			if err != nil {
				return err
			}
			printMoreWarnings(cmd.ErrOrStderr(), out.Warnings, warnings)
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			return writePreview(cmd.OutOrStdout(), &out)
		},
	}
	flags.register(cmd)
	registerConfig(cmd, &file, "the changed configuration file; - is standard input")
	return cmd
}

// printMoreWarnings prints what only the server knows: what in the file alone is
// doubtful has been told.
func printMoreWarnings(stderr io.Writer, warnings []admin.Problem, told []config.Problem) {
	for i := range warnings {
		if !slices.ContainsFunc(told, func(p config.Problem) bool { return p.Text == warnings[i].Error }) {
			_, _ = fmt.Fprintln(stderr, "warning: "+printable(warnings[i].Error)) // nobody to tell
		}
	}
}

// writePreview prints a table of shares and one of utilization for each service
// that would change.
func writePreview(w io.Writer, p *admin.Previewed) error {
	var b strings.Builder
	writePlanVerdict(&b, p)
	for i := range p.Services {
		writeServiceDifference(&b, &p.Services[i])
	}
	switch {
	case len(p.Services) == 0:
		fmt.Fprintf(&b, "nothing would change: %s as in plan %s\n", plural.Count(p.Same, "service stays", "services stay"), printable(p.Version))
	default:
		end := "settled after"
		if !p.Settled {
			end = "still moving after"
		}
		fmt.Fprintf(&b, "%s would change, %d would not; compared with plan %s, %s %s\n",
			plural.Count(len(p.Services), "service", "services"), p.Same, printable(p.Version), end, plural.Count(p.Ticks, "tick", "ticks"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ceilingSlack is by how much utilization may be above a ceiling without a mark: it is
// rounding.
const ceilingSlack = 0.005

// mostRisks bounds the lines of a verdict: all of them are in JSON.
const mostRisks = 20

// writePlanVerdict says first whether the change makes anything worse, and what.
func writePlanVerdict(b *strings.Builder, p *admin.Previewed) {
	if len(p.Services) == 0 {
		return
	}
	var worse []string
	for i := range p.Risks {
		worse = append(worse, p.Risks[i].Text)
	}
	if len(worse) == 0 {
		b.WriteString("verdict: nothing gets worse: no locality above its ceiling, no drops, " +
			"no mean latency up by more than 5% and 1 ms, at the current demand and health\n\n")
		return
	}
	fmt.Fprintf(b, "verdict: review before applying: %s\n", plural.Count(len(worse), "thing gets worse", "things get worse"))
	for i, text := range worse {
		if i == mostRisks {
			fmt.Fprintf(b, "  and %d more: see -o json\n", len(worse)-i)
			break
		}
		fmt.Fprintf(b, "  %s\n", printable(text))
	}
	b.WriteByte('\n')
}

func writeServiceDifference(b *strings.Builder, d *plan.ServiceDifference) {
	fmt.Fprintf(b, "%s: %s\n", printable(d.Service), d.Change)
	if d.Policy != isobar.PolicyLatency {
		fmt.Fprintf(b, "  policy %s: %.2f ms of mean latency above the optimum when settled\n", d.Policy, d.PolicyMS)
	}
	if d.Hold != "" {
		fmt.Fprintf(b, "  held: %s\n", printable(d.Hold))
	}
	if d.Drop != (plan.Three{}) {
		fmt.Fprintf(b, "  dropped: %s, %s after a tick, %s settled\n", percent(d.Drop.Before), percent(d.Drop.First), percent(d.Drop.Settled))
	}
	if d.Latency != (plan.Three{}) {
		fmt.Fprintf(b, "  mean latency: %s, %s after a tick, %s settled\n", millis(d.Latency.Before), millis(d.Latency.First), millis(d.Latency.Settled))
	}
	if d.Dead {
		b.WriteString("  no endpoint is left: clients try all of them\n")
	}
	columns := []column{{head: "  FROM"}, {head: "TO"}, {head: "BEFORE"}, {head: "FIRST TICK"}, {head: "SETTLED"}}
	row := func(cells ...string) {
		for i := range columns {
			columns[i].cells = append(columns[i].cells, cells[i])
		}
	}
	for i := range d.Sources {
		s := &d.Sources[i]
		for _, x := range s.Shares {
			row("  "+orDash(s.Source.String()), x.Locality.String(), percent(x.Share.Before), percent(x.Share.First), percent(x.Share.Settled))
		}
	}
	for _, l := range d.Localities {
		above := func(v float64) string {
			if l.Declared && v > l.Ceiling+ceilingSlack {
				return fmt.Sprintf("%s > %.0f%%", percent(v), 100*l.Ceiling)
			}
			return percent(v)
		}
		row("  utilization", l.Locality.String(), above(l.Utilization.Before), above(l.Utilization.First), above(l.Utilization.Settled))
	}
	writeColumns(b, columns)
	b.WriteByte('\n')
}
