package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plural"
)

func healthCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "health [SERVICE]",
		Short: "Show the results of health checks: verdicts, their age, votes and reasons",
		Long: `Show the results of health checks. With SERVICE, the command shows each endpoint
of the service with its verdict, the time and the age of the verdict, the vote of
every designated checker, and the reason. Without SERVICE, it shows one line for
each service with health checks, the connected checkers, and the health set by
operators. For a service with the name of a command below, use "isobar health --
NAME".`,
		Example: "  isobar health\n  isobar health checkout\n  isobar health checkout -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			service := strings.Join(args, "")
			list, err := remote.Verdicts(cmd.Context(), service)
			switch {
			case err != nil:
				return err
			case flags.output == outputText && len(args) == 1 && len(list.Services) == 1:
				return writeVerdicts(cmd.OutOrStdout(), &list.Services[0], time.Now())
			}
			set, err := remote.Overrides(cmd.Context())
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), healthOutput{list, overridesOf(set, service)})
			}
			return errors.Join(writeHealth(cmd.OutOrStdout(), &list, time.Now()), writeOverrides(cmd.OutOrStdout(), set, time.Now()))
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	cmd.AddCommand(healthReleaseCommand(), healthSetCommand())
	return cmd
}

// healthOutput is what -o json shows.
type healthOutput struct {
	admin.VerdictList

	Overrides []isobar.HealthOverride `json:"overrides"` // sorted by service and address
}

// overridesOf are those of one service, or all for an empty name.
func overridesOf(set []isobar.HealthOverride, service string) []isobar.HealthOverride {
	out := []isobar.HealthOverride{}
	for i := range set {
		if service == "" || set[i].Service == service {
			out = append(out, set[i])
		}
	}
	return out
}

// writeHealth prints a line for each service, then one for each checker.
func writeHealth(w io.Writer, list *admin.VerdictList, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVICE\tENDPOINTS\tHEALTHY\tDEGRADED\tDOWN\tUNKNOWN\tOLDEST\tNOTES")
	for i := range list.Services {
		s := &list.Services[i].Summary
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", printable(list.Services[i].Service), s.Endpoints,
			s.Healthy, s.Degraded, s.Down, s.Unknown, ago(s.OldestConfirmed, now), dash(serviceNotes(&list.Services[i])))
	}
	if len(list.Services) == 0 {
		fmt.Fprintln(table, "(no service has health_checks)")
	}
	fmt.Fprintln(table, "\nCHECKER\tLOCALITY\tPROTOCOLS\tENDPOINTS\tLAST REPORT\tREJECTED\tPEER")
	for i := range list.Checkers {
		c := &list.Checkers[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%d\t%s\n", printable(c.ID), printable(c.Locality.String()), c.Protocols,
			c.Designated, ago(c.LastReport, now), c.Rejected, c.Peer)
	}
	if len(list.Checkers) == 0 {
		fmt.Fprintln(table, "(none is connected)")
	}
	return table.Flush()
}

// writeOverrides prints what operators say of endpoints, if anything.
func writeOverrides(w io.Writer, set []isobar.HealthOverride, now time.Time) error {
	if len(set) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nSET BY OPERATORS\tSERVICE\tLOCALITY\tSTATE\tSINCE\tWHO\tREASON")
	for i := range set {
		o := &set[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(o.Address), printable(o.Service), orDash(o.Locality.String()), o.Status, ago(o.Since, now),
			dash(printable(o.Who)), dash(printable(o.Reason)))
	}
	return table.Flush()
}

func serviceNotes(r *health.ServiceReport) string {
	var out []string
	note := func(n int, what string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, what))
		}
	}
	note(r.Summary.Frozen, "frozen")
	note(r.Summary.Divided, "divided")
	note(r.Summary.Pending, "pending")
	note(r.Summary.Held, "held")
	note(len(r.Shortfalls), "short of checkers")
	if len(r.Drained) > 0 {
		out = append(out, "drained: "+places(r.Drained))
	}
	if r.Summary.FailOpen {
		out = append(out, "all down: fails open")
	}
	if r.Alarm != nil {
		out = append(out, "ALARM: "+r.Alarm.Why)
	}
	return strings.Join(out, ", ")
}

// writeVerdicts prints each endpoint of a service with its votes.
func writeVerdicts(w io.Writer, r *health.ServiceReport, now time.Time) error {
	if notes := serviceNotes(r); notes != "" {
		if _, err := fmt.Fprintf(w, "%s: %s\n\n", printable(r.Service), printable(notes)); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENDPOINT\tLOCALITY\tVERDICT\tSINCE\tCONFIRMED\tVOTES\tWHY")
	for i := range r.Endpoints {
		v := &r.Endpoints[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Address, v.Locality, verdictOf(v),
			ago(v.Since, now), ago(v.Confirmed, now), votesText(v.Votes, now), printable(v.Why))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return writeMetadata(w, r)
}

// maxMetadataLines bounds what checkers add to their votes on a screen.
const maxMetadataLines = 20

// writeMetadata prints what checkers said beside the status.
func writeMetadata(w io.Writer, r *health.ServiceReport) error {
	shown, more := 0, 0
	for i := range r.Endpoints {
		for j := range r.Endpoints[i].Votes {
			v := &r.Endpoints[i].Votes[j]
			if v.Metadata == "" {
				continue
			}
			if shown == maxMetadataLines {
				more++
				continue
			}
			shown++
			if _, err := fmt.Fprintf(w, "%s, by %s: %s\n", r.Endpoints[i].Address, printable(v.Checker), printable(v.Metadata)); err != nil {
				return err
			}
		}
	}
	if more == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s metadata: -o json shows it\n", plural.Count(more, "more vote has", "more votes have"))
	return err
}

func verdictOf(v *health.Verdict) string {
	words := []string{v.Status.String()}
	for _, flag := range []struct {
		set  bool
		name string
	}{{v.Frozen, "frozen"}, {v.Divided, "divided"}, {v.Pending, "pending"}, {v.Held, "held"}} {
		if flag.set {
			words = append(words, flag.name)
		}
	}
	out := strings.Join(words, ", ")
	if v.Divided && len(v.Zones) > 0 {
		out += " (down seen from " + places(v.Zones) + ")"
	}
	return out
}

// votesText returns each checker's word, the stale ones with their age.
func votesText(votes []health.Vote, now time.Time) string {
	out := make([]string, 0, len(votes))
	for i := range votes {
		v := &votes[i]
		text := printable(v.Checker) + "=" + v.Status.String()
		switch {
		case v.Heard.IsZero():
			text = printable(v.Checker) + "=-"
		case !v.Fresh:
			text += "(" + ago(v.Heard, now) + " ago)"
		case !v.Counts:
			text += "(not counted yet)"
		}
		out = append(out, text)
	}
	return dash(strings.Join(out, " "))
}

func places(list []isobar.Locality) string {
	out := make([]string, len(list))
	for i, l := range list {
		out[i] = l.String()
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// ago is an age in words, "-" for a time that never was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(0, now.Sub(t))
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func healthReleaseCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "release SERVICE",
		Short: "Accept a held mass failure",
		Long: `Accept a held mass failure. If checkers vote down more than half of a service at
once, the fault is probably in the checkers or their network. Isobar then holds the
previous verdicts, and "isobar health" shows an alarm. This command confirms that the
endpoints are down. The admin interface must be writable.`,
		Example: "  isobar health release checkout",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			answer, err := remote.Release(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), answer)
			}
			text := "the held mass failure is accepted"
			if !answer.Released {
				text = "nothing is held"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", printable(args[0]), text)
			return err
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	return cmd
}

// clearHealth takes back what an operator set.
const clearHealth = "clear"

// settableHealth is what an operator may say of an endpoint.
var settableHealth = []string{isobar.Healthy.String(), isobar.Unhealthy.String(), isobar.Draining.String(), clearHealth}

func healthSetCommand() *cobra.Command {
	var flags operatorFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "set SERVICE ADDRESS healthy|unhealthy|draining|clear",
		Short: "Set the health of an endpoint, overriding configuration and checkers; clear removes the setting",
		Long: `Set the health of one endpoint. The setting overrides the configuration and the
checkers, even after a restart, until you clear it or the endpoint is removed. The
command waits for the plan that contains the change. The admin interface must be
writable. Without --force, the server refuses a drain that would put a locality
above its ceiling, make clients drop requests, or leave no endpoint; "isobar
whatif --drain" shows the effect. In a group of replicas without a leader, --force
stores the setting for the next leader.`,
		Example: "  isobar health set checkout 10.0.0.1:8080 draining -m 'kernel update'\n  isobar health set checkout 10.0.0.1:8080 clear",
		Args:    setHealthArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) != 2 {
				return flags.completeServices(0)(cmd, args, start)
			}
			return settableHealth, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			status := isobar.Unknown
			text := "as the configuration and checkers report"
			if state := strings.ToLower(args[2]); state != clearHealth {
				if status, err = isobar.ParseHealth(state); err != nil {
					return err
				}
				text = state + " by operator"
			}
			answer, err := remote.SetHealth(cmd.Context(), &isobar.HealthOverride{
				Service: args[0], Address: args[1], Status: status, Who: flags.who, Reason: flags.reason,
			}, force)
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), answer)
			}
			for _, w := range answer.Warnings {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", printable(w.Error))
			}
			when := "plan " + answer.Version
			if answer.Reason != "" {
				when = "no plan yet: " + answer.Reason
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s of %s is %s; in %s\n", printable(args[1]), printable(args[0]), text, printable(when))
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "drain even if the remaining capacity can't carry the traffic, or if no replica leads")
	return cmd
}

func setHealthArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(3)(cmd, args); err != nil {
		return err
	}
	if !slices.Contains(settableHealth, strings.ToLower(args[2])) {
		return fmt.Errorf("health %q: want %s", args[2], strings.Join(settableHealth, ", "))
	}
	return nil
}
