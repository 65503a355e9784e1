package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

func rollbackCommand() *cobra.Command {
	var flags operatorFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "rollback VERSION [SERVICE]",
		Short: "Return to the weights of an earlier version, and pause them",
		Long: `Return to the weights that a service, or all services, had at an earlier version
of the plan, with the present endpoints and health, and pause them, because the
next decision would otherwise move the weights again. "isobar history" lists the
versions; you can return to any version since the oldest listed change. The
rollback takes effect at once, as a new version. Drops do not change.

The server refuses a rollback if, at the present demand, it would put a locality
above its ceiling and above its present utilization, or if the fleet would no
longer survive the loss of a zone that it survives now; --force overrides both. It
also refuses a rollback that changes no share. The command shows utilization and
shares before and after. The admin interface must be writable.`,
		Example: "  isobar history checkout\n  isobar rollback 4711 checkout -m 'before the canary'\n  isobar resume checkout",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := plan.ParseVersion(args[0]); err != nil {
				return usagef("%q is not a version: give one as `isobar history` lists them", args[0])
			}
			o := flags.request(args[1:])
			o.Version, o.Force = args[0], force
			return flags.send(cmd, o, (*admin.Remote).Rollback, func(w io.Writer, o *admin.OperatorRequest, out *admin.Operated) error {
				return writeOperated(w, orAll(o.Service)+" rolled back to "+o.Version+" and paused", out)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "roll back even if the present demand does not fit under the ceilings")
	cmd.ValidArgsFunction = flags.completeServices(1)
	return cmd
}
