package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plural"
)

func samplesCommand() *cobra.Command {
	var flags remoteFlags
	limit, day := 20, false
	cmd := &cobra.Command{
		Use:   "samples [SERVICE]",
		Short: "Show demand, drops and utilization over the last hour or day",
		Long: `Show values from the plans of the last hour, for a service or for all services
together: demand, drops, the gap from the optimum, the shares that other
zones and regions serve, and the fullest locality. The newest step comes first.
A step is 5 s, or 1 min with --day; with many services it is longer. The server
keeps samples only in memory, so they begin with its start.`,
		Example: "  isobar samples\n  isobar samples checkout -n 60\n  isobar samples checkout --day -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			service := ""
			if len(args) > 0 {
				service = args[0]
			}
			found, err := remote.Samples(cmd.Context(), service, day)
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), found)
			}
			return writeSamples(cmd.OutOrStdout(), &found, limit)
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	cmd.Flags().IntVarP(&limit, "number", "n", limit, "how many steps to show at most; 0 = all")
	cmd.Flags().BoolVar(&day, "day", false, "show the last day instead of the last hour")
	return cmd
}

// writeSamples prints a line for each step that has a sample, newest first.
func writeSamples(w io.Writer, s *admin.SampleSeries, limit int) error {
	var b strings.Builder
	columns := []column{
		{head: "TIME"}, {head: "DEMAND/S"}, {head: "DROP"}, {head: "GAP"}, {head: "CROSS-ZONE"}, {head: "CROSS-REGION"}, {head: "FULLEST"},
	}
	lines := 0
	for i := len(s.Demand) - 1; i >= 0 && (limit <= 0 || lines < limit); i-- {
		if math.IsNaN(s.Demand[i]) {
			continue
		}
		lines++
		at := s.Begin.Add(time.Duration(float64(i) * s.StepSeconds * float64(time.Second)))
		for j, cell := range []string{
			at.UTC().Format(time.RFC3339), fmt.Sprintf("%.1f", s.Demand[i]), percent(s.Drop[i]), percent(s.Gap[i]),
			percent(s.CrossZone[i]), percent(s.CrossRegion[i]), fullestAt(s, i),
		} {
			columns[j].cells = append(columns[j].cells, cell)
		}
	}
	if lines > 0 {
		writeColumns(&b, columns)
	}
	fmt.Fprintf(&b, "%s of %s, a step takes %.0f s\n", plural.Count(lines, "sample", "samples"), orAll(printable(s.Service)), s.StepSeconds)
	_, err := io.WriteString(w, b.String())
	return err
}

// fullestAt names the locality of the highest utilization in a step.
func fullestAt(s *admin.SampleSeries, i int) string {
	most, name := -1.0, "-"
	for k := range s.Localities {
		if used := s.Localities[k].Utilization; i < len(used) && used[i] > most {
			most, name = used[i], fmt.Sprintf("%s %s", percent(used[i]), printable(s.Localities[k].Locality.String()))
		}
	}
	return name
}
