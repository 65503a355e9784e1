package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

func reloadCommand() *cobra.Command {
	var flags operatorFlags
	var confirm string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Read the configuration file again, and confirm held removals",
		Long: `Make a running server read its configuration file now, and show held removals. The
server also notices changes of the file by itself.

The server holds removals that would make requests fail. If the file no longer has a
service, the server serves it until clients stop sending to it. The server refuses a
file that removes two or more services or localities, if these are more than a third
of all. It also refuses a file that removes more than half of the endpoints of a
service that has at least 6. "isobar status" and the log show all of these, with a digest of the file.
--confirm DIGEST applies the held removals of exactly that file, once. The admin
interface must be writable. The exit status is 1 while something is held.`,
		Example: "  isobar reload\n  isobar reload --confirm 3f1d9c02ab4e -m 'checkout was renamed'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			o := flags.request(nil)
			o.Confirm = confirm
			out, err := remote.Reload(cmd.Context(), o)
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				err = writeJSON(cmd.OutOrStdout(), out)
			} else {
				err = writeReloaded(cmd.OutOrStdout(), &out)
			}
			if err == nil && out.Held != nil {
				err = errAttention // a script must not take it for done
			}
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&confirm, "confirm", "", "digest of the file whose held removals to apply, as isobar status shows it")
	return cmd
}

func writeReloaded(w io.Writer, out *admin.Reloaded) error {
	held := out.Held
	if held == nil {
		_, err := fmt.Fprintln(w, "the configuration file is in force")
		return err
	}
	if held.Removes != "" {
		_, err := fmt.Fprintf(w, "held: the file removes %s, and is not in force; isobar reload --confirm %s applies it\n",
			printable(held.Removes), printable(held.Digest))
		return err
	}
	for i := range held.Services {
		h := &held.Services[i]
		if _, err := fmt.Fprintf(w, "%s: held: removed from the configuration while clients send %.4g requests/s\n", printable(h.Service), h.Rate); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "the rest of the configuration file is in force; isobar reload --confirm %s applies the held removals\n", printable(held.Digest))
	return err
}
