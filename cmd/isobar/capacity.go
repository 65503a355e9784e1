package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

func capacityCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "capacity SERVICE",
		Short: "Show the capacity of each locality: declared, and estimated from requests",
		Long: `Show the capacity of each locality of a service: the declared one, the one that
the plan uses, and the interval estimated from requests. The estimate uses the
rate of requests, the requests in progress, and the failed ones, all from load
reports. Below about 65% utilization, the requests of a locality are usually not
enough for an estimate.`,
		Example: "  isobar capacity checkout\n  isobar capacity checkout -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			list, err := remote.Capacity(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			return writeCapacity(cmd.OutOrStdout(), &list)
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	return cmd
}

// writeCapacity prints a line for each locality.
func writeCapacity(w io.Writer, list *admin.CapacityList) error {
	var b strings.Builder
	columns := []column{{head: "LOCALITY"}, {head: "DECLARED"}, {head: "PLAN"}, {head: "FROM REQUESTS"}, {head: "SINCE"}, {head: "WHY"}}
	for i := range list.Localities {
		c := &list.Localities[i]
		declared, told, since := "-", "inconclusive", "-"
		if c.Declared > 0 {
			declared = fmt.Sprintf("%.0f/s", c.Declared)
		}
		if c.Known {
			told = fmt.Sprintf("%.0f to %.0f/s", c.Low, c.High)
		}
		if !c.Since.IsZero() {
			since = c.Since.UTC().Format(time.RFC3339)
		}
		for j, cell := range []string{printable(c.Locality.String()), declared, fmt.Sprintf("%.0f/s", c.InUse), told, since, printable(c.Why)} {
			columns[j].cells = append(columns[j].cells, cell)
		}
	}
	writeColumns(&b, columns)
	for i := range list.LeftOut {
		x := &list.LeftOut[i]
		fmt.Fprintf(&b, "client %s in %s does not count: %s\n", orDash(printable(x.Node)), sourceName(x.Source), x.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
