package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

func clientsCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Show the connected clients: who is in sync, and the last NACK",
		Long: `Show every connected xDS client: per resource type how many names it subscribes
to, the version sent and the version acknowledged, the age of that
acknowledgement, and the text of the last refusal (NACK), also after the client recovered from it.`,
		Example: "  isobar clients\n  isobar clients -o json | jq '.clients[] | select(.in_sync | not)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			list, err := remote.Clients(cmd.Context())
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			return writeClients(cmd.OutOrStdout(), list)
		},
	}
	flags.register(cmd)
	return cmd
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// writeClients prints a table with one line for each client and type.
func writeClients(w io.Writer, list admin.ClientList) error {
	inSync := 0
	if len(list.Clients) > 0 {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NODE\tCLUSTER\tLOCALITY\tFORM\tTYPE\tNAMES\tSENT\tACKED\tAGE\tSTATE")
		for i := range list.Clients {
			writeClient(table, &list.Clients[i])
			if list.Clients[i].InSync {
				inSync++
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for i := range list.Clients {
		if err := writeTroubles(w, &list.Clients[i]); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%d of %d clients in sync", inSync, len(list.Clients))
	if list.Version != "" {
		text += ", plan " + list.Version
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func writeClient(table *tabwriter.Writer, c *admin.Client) {
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.Types[name]
		names := strconv.Itoa(t.Subscribed)
		if t.Subscribed < 0 {
			names = "*"
		}
		age := time.Duration(t.AgeSeconds * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			orDash(c.ID), orDash(c.Cluster), orDash(c.Locality), orDash(c.Form), name, names, orDash(t.SentVersion), orDash(t.AckedVersion), age, t.State())
	}
	if len(c.Types) == 0 {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t-\t-\t-\t-\t-\tno subscription\n",
			orDash(c.ID), orDash(c.Cluster), orDash(c.Locality), orDash(c.Form))
	}
}

// writeTroubles prints what a client refused, and what was refused of it.
func writeTroubles(w io.Writer, c *admin.Client) error {
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		nack := c.Types[name].NACK
		if nack == nil {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: last NACK of %s, version %s at %s: %s\n",
			orDash(c.ID), name, orDash(nack.Version), nack.At.UTC().Format(time.RFC3339), orDash(nack.Text)); err != nil {
			return err
		}
	}
	if c.LRS != nil && c.LRS.Rejected > 0 {
		if _, err := fmt.Fprintf(w, "%s: %d entries of its load reports were dropped: %s\n", orDash(c.ID), c.LRS.Rejected, orDash(c.LRS.Reason)); err != nil {
			return err
		}
	}
	if c.LRS != nil && c.LRS.Excess > 0 {
		if _, err := fmt.Fprintf(w, "%s: %d of its load reports were ignored: it sends them far more often than it was asked to\n",
			orDash(c.ID), c.LRS.Excess); err != nil {
			return err
		}
	}
	return nil
}
