package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

func historyCommand() *cobra.Command {
	var flags remoteFlags
	limit, at, span := 20, "", time.Duration(0)
	cmd := &cobra.Command{
		Use:   "history [SERVICE]",
		Short: "Show what changed: version, time, trigger, reason, shares before and after",
		Long: `Show the last changes of the plan, newest first: version, time, trigger (tick,
health, topology, operator, restart), reason, and the largest move of
a source's shares. If a change affects many services, the command shows
those with the largest moves. With SERVICE, it shows the shares of the service's
sources before and after. The server keeps the last 1,000 changes, also across
restarts.

With --at, it shows the last change at or before a moment of the last 24 hours and,
with SERVICE, the shares of the service then. With --at and --for, it lists the
changes in the time after that moment, largest first; changes of health, of the
configuration and by operators come before regular decisions. If there are several
changes, it first names the largest change of health, of the configuration or by an
operator. It then compares the state before and after all changes: the shares, the
requests at the present demand, and the range of the shares in between.`,
		Example: "  isobar history\n  isobar history checkout -n 5\n  isobar history -n 0 -o json\n" +
			"  isobar history checkout --at 2026-01-31T14:03:00Z\n  isobar history --at 14:03 --for 1m",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			service := ""
			if len(args) > 0 {
				service = args[0]
			}
			if span != 0 {
				return writeSpan(cmd, remote, &flags, service, at, span)
			}
			if at != "" {
				return writeMomentAt(cmd, remote, &flags, service, at)
			}
			list, err := remote.History(cmd.Context(), service)
			if err != nil {
				return err
			}
			if limit > 0 && len(list.Changes) > limit {
				list.Changes = list.Changes[:limit]
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			return writeHistory(cmd.OutOrStdout(), &list, service != "")
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	cmd.Flags().IntVarP(&limit, "number", "n", limit, "how many changes to show at most; 0 = all")
	cmd.Flags().StringVar(&at, "at", "", "moment to show, as 2026-01-31T14:03:00Z or 14:03 of the last 24 hours, local time")
	cmd.Flags().DurationVar(&span, "for", 0, "with --at: list the changes in this time after that moment, such as 1m")
	return cmd
}

// writeHistory prints a line for each service of each change, and with detail
// the shares of its sources.
func writeHistory(w io.Writer, list *admin.ChangeList, detail bool) error {
	var b strings.Builder
	columns := []column{{head: "VERSION"}, {head: "TIME"}, {head: "TRIGGER"}, {head: "SERVICE"}, {head: "MOVED"}, {head: "WHY"}}
	row := func(c *plan.Change, cells ...string) {
		all := append([]string{strconv.FormatUint(c.Version, 10), c.Made.UTC().Format(time.RFC3339), c.Trigger}, cells...)
		for i := range columns {
			columns[i].cells = append(columns[i].cells, all[i])
		}
	}
	for i := range list.Changes {
		c := &list.Changes[i]
		why := ""
		if c.Trigger == plan.TriggerOperator {
			why = printable(c.Who + ": " + c.Reason)
		}
		if len(c.Services) == 0 {
			about := "-"
			if c.Trigger == plan.TriggerOperator {
				about = orAll(c.About)
			}
			row(c, about, "-", orDash(why))
		}
		shown := mostMoved(c.Services)
		for j := range shown {
			s := &shown[j]
			text := why
			if text == "" {
				text = printable(s.Reason)
			}
			row(c, printable(s.Service), fmt.Sprintf("%.1f", 100*s.Moved()), orDash(text))
		}
		if more := len(c.Services) - len(shown); more > 0 {
			row(c, fmt.Sprintf("and %d more", more), "-", "none of them moved more; see -o json, or isobar history SERVICE")
		}
	}
	if !detail {
		writeColumns(&b, columns)
	} else {
		writeDetails(&b, list)
	}
	fmt.Fprintf(&b, "%s, plan %s is in force\n", plural.Count(len(list.Changes), "change", "changes"), printable(list.Version))
	_, err := io.WriteString(w, b.String())
	return err
}

// mostServices bounds the lines of one change, which may concern thousands of
// services at once.
const mostServices = 10

// mostMoved returns the services of a change that moved farthest, in their order
// where all of them fit.
func mostMoved(services []plan.ServiceChange) []plan.ServiceChange {
	if len(services) <= mostServices {
		return services
	}
	sorted := slices.Clone(services)
	slices.SortStableFunc(sorted, func(a, b plan.ServiceChange) int {
		return cmp.Or(cmp.Compare(b.Moved(), a.Moved()), cmp.Compare(math.Abs(b.After-b.Before), math.Abs(a.After-a.Before)))
	})
	return sorted[:mostServices]
}

// writeDetails prints what each change did to each source.
func writeDetails(b *strings.Builder, list *admin.ChangeList) {
	for i := range list.Changes {
		c := &list.Changes[i]
		fmt.Fprintf(b, "%d  %s  %s", c.Version, c.Made.UTC().Format(time.RFC3339), c.Trigger)
		if c.Trigger == plan.TriggerOperator {
			fmt.Fprintf(b, "  %s  %s", orAll(c.About), printable(c.Who+": "+c.Reason))
		}
		b.WriteByte('\n')
		for j := range c.Services {
			s := &c.Services[j]
			fmt.Fprintf(b, "  %s\n", orDash(s.Reason))
			if s.Before != s.After {
				fmt.Fprintf(b, "  dropped  %s -> %s\n", percent(s.Before), percent(s.After))
			}
			for k := range s.Sources {
				fmt.Fprintf(b, "  from %s  %s\n", orDash(s.Sources[k].Source.String()), moves(s, &s.Sources[k]))
			}
		}
	}
}

// moves tells the shares of a source before and after, where they differ.
func moves(s *plan.ServiceChange, x *plan.SourceChange) string {
	var parts []string
	share := func(units []uint16, l int) string {
		if l >= len(units) {
			return "-"
		}
		return fmt.Sprintf("%.1f%%", 100*float64(units[l])/isobar.WeightScale)
	}
	for l := range s.Sites {
		before, after := share(x.Before, l), share(x.After, l)
		if before != after && len(strings.Trim(before+after, "-0.%")) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", s.Sites[l], before, after))
		}
	}
	return strings.Join(parts, ", ")
}
