package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plural"
)

func clientsCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Show the connected clients, whether they are in sync, and their last NACK",
		Long: `Show every connected client on one line: its subscriptions (a number for each
type, * for all resources, and the names of one or two services), the version
sent and the version acknowledged, the age of that acknowledgement, and whether
it reports load. Versions and age are those of the type that is furthest
behind; -o json has them for each type. Lines after the table have the text of each
client's last refusal (NACK), even if the client has recovered.
A client that subscribes to a service that does not exist is "not found"; a line after
the table then lists similar names.

The streams of one process on one connection are one client; the last line
counts all discovery streams. Clients with the same node id have one line
each.`,
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
			return writeClients(cmd.OutOrStdout(), list, widthOf(cmd.OutOrStdout()))
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

// writeClients prints a table with one line for each client.
func writeClients(w io.Writer, list admin.ClientList, width int) error {
	var b strings.Builder
	inSync, lost, streams := 0, 0, 0
	for i := range list.Clients {
		streams += list.Clients[i].Streams
		if list.Clients[i].Follows() {
			inSync++
		}
		if len(list.Clients[i].Missing) > 0 {
			lost++
		}
	}
	if len(list.Clients) > 0 {
		columns, _ := fitColumns(clientColumns(list.Clients), width)
		writeColumns(&b, columns)
	}
	for i := range list.Clients {
		writeTroubles(&b, &list.Clients[i])
	}
	fmt.Fprintf(&b, "%d of %s in sync, on %s", inSync, plural.Count(len(list.Clients), "client", "clients"), plural.Count(streams, "stream", "streams"))
	if lost > 0 {
		fmt.Fprintf(&b, ", %d asking for services that do not exist", lost)
	}
	if list.Version != "" {
		b.WriteString(", plan " + list.Version)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// clientColumns are those of the table of clients.
func clientColumns(clients []admin.Client) []column {
	columns := []struct {
		head  string
		spare int
		cell  func(c *admin.Client) string
	}{
		{"NODE", 0, func(c *admin.Client) string { return orDash(c.ID) }},
		{"CLUSTER", 2, func(c *admin.Client) string { return orDash(c.Cluster) }},
		{"LOCALITY", 0, func(c *admin.Client) string { return orDash(c.Locality) }},
		{"API", 4, func(c *admin.Client) string { return orDash(c.APIVersion) }},
		{"RESOURCES", 1, clientResources},
		{"SENT", 4, func(c *admin.Client) string { return orDash(behindMost(c).SentVersion) }},
		{"ACKED", 3, func(c *admin.Client) string { return orDash(behindMost(c).AckedVersion) }},
		{"AGE", 3, func(c *admin.Client) string {
			if len(c.Types) == 0 {
				return "-"
			}
			return age(behindMost(c).AgeSeconds)
		}},
		{"LOAD", 2, func(c *admin.Client) string {
			switch {
			case c.ReportsTo != "":
				return "to " + printable(c.ReportsTo)
			case c.LRS == nil:
				return "-"
			case c.LRS.LastReport.IsZero():
				return "none yet"
			}
			return "reports"
		}},
		{"STATE", 0, clientState},
	}
	out := make([]column, len(columns))
	for i, c := range columns {
		out[i] = column{head: c.head, spare: c.spare, cells: make([]string, len(clients))}
		for j := range clients {
			out[i].cells[j] = c.cell(&clients[j])
		}
	}
	return out
}

// clientResources lists the types of a client with the number of names of each;
// of assignments with the names of the services where they are one or two. *
// stands for all.
func clientResources(c *admin.Client) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.Types[name]
		text := strconv.Itoa(t.Subscribed)
		switch {
		case t.Subscribed < 0:
			text = "*"
		case name == "eds" && (len(t.Names) == 1 || len(t.Names) == 2): // more would make lines too long
			text = printable(strings.Join(t.Names, ","))
		}
		parts = append(parts, name+":"+text)
	}
	return orDash(strings.Join(parts, " "))
}

// behindMost is the type that is furthest behind; where all are in sync, the one
// that was acknowledged last.
func behindMost(c *admin.Client) admin.ClientType {
	var worst admin.ClientType
	for i, name := range slices.Sorted(maps.Keys(c.Types)) {
		if t := c.Types[name]; i == 0 || t.Late(&worst) {
			worst = t
		}
	}
	return worst
}

// clientState says how far a client is, and of which type that holds where it is
// not in sync.
func clientState(c *admin.Client) string {
	if len(c.Types) == 0 {
		return "no subscription"
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		if t := c.Types[name]; t.State() != admin.InSync {
			out = append(out, t.State()+" "+name)
		}
	}
	if len(c.Deviates) > 0 {
		out = append(out, "off its weights")
	}
	if len(out) == 0 {
		return admin.InSync
	}
	return strings.Join(out, ", ")
}

// writeTroubles prints what a client refused, and what was refused of it.
func writeTroubles(b *strings.Builder, c *admin.Client) {
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		if nack := c.Types[name].NACK; nack != nil {
			fmt.Fprintf(b, "%s: last NACK of %s, version %s at %s: %s\n",
				orDash(c.ID), name, orDash(nack.Version), nack.At.UTC().Format(time.RFC3339), orDash(nack.Text))
		}
	}
	for _, d := range c.Deviates {
		fmt.Fprintf(b, "%s: does not follow its weights of %s: at least %.0f%% of its requests go elsewhere", orDash(c.ID), orDash(d.Service), d.Points)
		if d.ToShare > 0 {
			fmt.Fprintf(b, "; it sends %.0f%% to %s", 100*d.ToShare, orDash(d.To.String()))
		}
		b.WriteByte('\n')
	}
	for i := range c.Missing {
		fmt.Fprintf(b, "%s: %s\n", orDash(c.ID), printable(c.Missing[i].String()))
	}
	if c.LRS != nil && c.LRS.Rejected > 0 {
		fmt.Fprintf(b, "%s: %s dropped: %s\n",
			orDash(c.ID), plural.Count(c.LRS.Rejected, "entry of its load reports was", "entries of its load reports were"), orDash(c.LRS.Reason))
	}
	if c.LRS != nil && c.LRS.Excess > 0 {
		fmt.Fprintf(b, "%s: %s ignored: it sends them far more often than it was asked to\n",
			orDash(c.ID), plural.Count(c.LRS.Excess, "of its load reports was", "of its load reports were"))
	}
}
