package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
)

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
	var flags remoteFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "set SERVICE ADDRESS healthy|unhealthy|draining|clear",
		Short: "Set the health of an endpoint, overriding configuration and checkers; clear removes the setting",
		Long: `Set the health of one endpoint. The setting overrides the configuration and the
checkers, also after a restart, until you clear it or the endpoint is removed. The
command waits for the plan that contains the change. The admin interface must be
writable. Without --force, the server refuses a drain that would put a locality
above its ceiling, make clients drop requests, or leave no endpoint; "isobar
whatif --drain" shows the effect. In a group of replicas without a leader, --force
stores the setting for the next leader.`,
		Example: "  isobar health set checkout 10.0.0.1:8080 draining\n  isobar health set checkout 10.0.0.1:8080 clear",
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
			text := "what the configuration and checkers say"
			if state := strings.ToLower(args[2]); state != clearHealth {
				if status, err = isobar.ParseHealth(state); err != nil {
					return err
				}
				text = state + " by operator"
			}
			answer, err := remote.SetHealth(cmd.Context(), args[0], args[1], status, force)
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
