package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

func replicasCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replicas",
		Short: "Show a group of replicas, and move its leadership",
	}
	cmd.AddCommand(replicasStatusCommand(), stepDownCommand(), acceptConfigCommand())
	return cmd
}

func replicasStatusCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the replicas of the group: which one leads, and which plan each one serves",
		Long: `Show the group of replicas, as seen by the replica that answers. Each replica has one line:
its role, the age of its last message, the plan that it serves and the age of that
plan, its discovery streams, load report streams and checkers, and the digest of
its configuration file. The lines after the table name replicas that can't be reached, and
the last alarms. You can ask any replica.

The exit status is 1 if no replica leads, if a replica can't be reached, if the
election engine does not answer, or if replicas have different configurations.`,
		Example: "  isobar replicas status\n  isobar replicas status -o json | jq .leader",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			g, err := remote.Replicas(cmd.Context())
			if err != nil {
				return err
			}
			troubles := g.Troubles()
			if flags.output == outputJSON {
				err = writeJSON(cmd.OutOrStdout(), g)
			} else {
				err = writeReplicas(cmd.OutOrStdout(), &g, troubles, widthOf(cmd.OutOrStdout()))
			}
			if err == nil && len(troubles) > 0 {
				err = errAttention
			}
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

func stepDownCommand() *cobra.Command {
	var flags operatorFlags
	cmd := &cobra.Command{
		Use:   "step-down",
		Short: "Make the leader of the group give up leadership",
		Long: `Make the leader of the group give up leadership. Another replica takes over within two
seconds, and the old leader does not campaign for 30 s. This does not affect
clients. You can ask any replica. The admin interface must be writable.`,
		Example: "  isobar replicas step-down -m 'maintenance of host 3'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			out, err := remote.StepDown(cmd.Context(), flags.request(nil))
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s was asked to step down; isobar replicas status shows its successor\n", printable(out.Leader))
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

func acceptConfigCommand() *cobra.Command {
	var flags operatorFlags
	cmd := &cobra.Command{
		Use:   "accept-config DIGEST",
		Short: "Put the leader's configuration into force without a majority of the group",
		Long: `Put the configuration file of the leader into force although at most half of the group has
the same file, for example while other replicas are lost. DIGEST is the digest of the
leader's file, as isobar replicas status shows it, so that you accept no other
file by mistake. You can ask any replica. The command applies only to this file: a
later change needs a majority again. The admin interface must be writable.`,
		Example: "  isobar replicas accept-config 3f2a9c0d1b5e7788 -m 'host 2 and 3 are down'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			out, err := remote.AcceptConfig(cmd.Context(), admin.AcceptConfigRequest{Digest: args[0], Who: flags.who, Reason: flags.reason})
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the configuration %s of %s is accepted\n", printable(out.Digest), printable(out.Leader))
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

// writeReplicas prints a table with one line for each replica.
func writeReplicas(w io.Writer, g *admin.ReplicaGroup, troubles []string, width int) error {
	if g.Role == admin.RoleAlone {
		_, err := fmt.Fprintln(w, "this server is not in a group: its configuration has no replicas")
		return err
	}
	var b strings.Builder
	leader := "no leader"
	if g.Leader != "" {
		leader = "leader " + printable(g.Leader)
		if g.Caretaker() != "" {
			leader = "caretaker " + printable(g.Leader)
		}
		if !g.LedSince.IsZero() {
			leader += " since " + g.LedSince.UTC().Format(time.RFC3339)
		}
	}
	fmt.Fprintf(&b, "group %s: %s, epoch %d; %d of %d replicas live, %d more may fail%s\n\n",
		printable(g.Group), leader, g.Epoch, g.Live(), len(g.Replicas), max(0, g.Spare), unreached(g))
	if g.InForce != "" {
		fmt.Fprintf(&b, "configuration in force: %s\n\n", printable(g.InForce))
	}
	columns, _ := fitColumns(replicaColumns(g), width)
	writeColumns(&b, columns)
	if len(troubles) > 0 {
		b.WriteString("\n")
	}
	for _, text := range troubles {
		b.WriteString(printable(text) + "\n")
	}
	for _, text := range g.Alarms {
		fmt.Fprintf(&b, "alarm: %s\n", printable(text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unreached says which live replicas can't lead; "" where all can.
func unreached(g *admin.ReplicaGroup) string {
	switch n := g.Reaching(); n {
	case g.Live():
		return ""
	case 0:
		return ": none reaches the election engine"
	default:
		return fmt.Sprintf(": %d live replicas can't reach the election engine", g.Live()-n)
	}
}

func replicaColumns(g *admin.ReplicaGroup) []column {
	columns := []column{
		{head: "REPLICA"}, {head: "ROLE"}, {head: "HEARD", spare: 1}, {head: "PLAN"}, {head: "AGE"}, {head: "STREAMS"},
		{head: "REPORTS", spare: 2}, {head: "CHECKERS", spare: 3}, {head: "CONFIG", spare: 4}, {head: "ISOBAR", spare: 5},
	}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		cells := []string{
			printable(r.Name), "-", "-", "-", "-", strconv.Itoa(int(r.DiscoveryStreams)), strconv.Itoa(int(r.LoadReportStreams)),
			strconv.Itoa(int(r.Checkers)), printable(r.ConfigDigest), printable(r.Version),
		}
		switch {
		case r.Cares:
			cells[1] = "caretaker"
		case r.Leads:
			cells[1] = "leader"
		case r.Live:
			cells[1] = "follower"
		default:
			cells[1] = "lost"
		}
		if r.Name == g.Name {
			cells[2] = "asked"
		} else if r.Heard > 0 {
			cells[2] = seconds(r.Heard)
		}
		if r.Plan > 0 {
			cells[3], cells[4] = strconv.FormatUint(r.Plan, 10), seconds(r.PlanAge)
		}
		for k := range columns {
			columns[k].cells = append(columns[k].cells, cells[k])
		}
	}
	return columns
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
