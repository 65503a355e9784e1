package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plural"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save and restore the operators' state",
	}
	cmd.AddCommand(snapshotSaveCommand(), snapshotInspectCommand(), snapshotRestoreCommand())
	return cmd
}

func snapshotSaveCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the operators' state to a file",
		Long: `Save the operators' state: the services of the admin API, the health that operators
set, and pauses. Plans, learned capacities and loads are not part of it: a server
learns them again. Every replica of a group returns the same snapshot. FILE - prints
it.`,
		Example: "  isobar snapshot save operators.json\n  isobar snapshot save - | jq .paused",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			s, err := remote.Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			data, err := json.MarshalIndent(&s, "", "  ")
			if err != nil {
				return err
			}
			data = append(data, '\n')
			if args[0] == "-" {
				_, err = cmd.OutOrStdout().Write(data)
				return err
			}
			if err := writeWhole(args[0], data); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], contentsOf(&s))
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

// writeWhole writes a file under another name first, so that a snapshot that was there
// stays whole where the disk is full.
func writeWhole(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error above says more
	}
	return err
}

// contentsOf counts what a snapshot has.
func contentsOf(s *admin.Snapshot) string {
	return fmt.Sprintf("%s, %s, %s", plural.Count(len(s.Services), "service", "services"),
		plural.Count(len(s.Health), "health mark", "health marks"), plural.Count(len(s.Paused), "pause", "pauses"))
}

func snapshotInspectCommand() *cobra.Command {
	var output outputFormat
	cmd := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Show the content of a snapshot, without a server",
		Long:    "Check a file that \"isobar snapshot save\" wrote, and show its content. FILE - reads standard input.",
		Example: "  isobar snapshot inspect operators.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			if output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), s)
			}
			return writeSnapshot(cmd.OutOrStdout(), &s)
		},
	}
	output.register(cmd)
	return cmd
}

func readSnapshot(cmd *cobra.Command, file string) (s admin.Snapshot, err error) {
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(cmd.InOrStdin())
	} else {
		data, err = os.ReadFile(file) //nolint:gosec // the user names it
	}
	if err != nil {
		return s, err
	}
	if s, err = admin.ReadSnapshot(data); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func writeSnapshot(w io.Writer, s *admin.Snapshot) error {
	var b strings.Builder
	fmt.Fprintf(&b, "saved %s", s.Made.UTC().Format(time.RFC3339))
	if s.Plan != "" {
		fmt.Fprintf(&b, ", plan %s", printable(s.Plan))
	}
	fmt.Fprintf(&b, ": %s\n", contentsOf(s))
	for i := range s.Services {
		endpoints := 0
		for j := range s.Services[i].Localities {
			endpoints += len(s.Services[i].Localities[j].Endpoints)
		}
		fmt.Fprintf(&b, "service %s: %s, %s\n", printable(s.Services[i].Name),
			plural.Count(len(s.Services[i].Localities), "locality", "localities"), plural.Count(endpoints, "endpoint", "endpoints"))
	}
	for _, h := range s.Health {
		fmt.Fprintf(&b, "health %s %s %s\n", printable(h.Service), printable(h.Address), h.Status)
	}
	for _, p := range s.Paused {
		fmt.Fprintf(&b, "%s %s\n", printable(pausedName(p.Service)), printable(p.String()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func pausedName(service string) string {
	if service == "" {
		return "all services"
	}
	return service
}

func snapshotRestoreCommand() *cobra.Command {
	var flags remoteFlags
	var dry, prune, force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Write the content of a snapshot to a server or a group",
		Long: `Restore the operators' state from a snapshot. The command writes all services at
once, then the health of endpoints, then pauses, and prints each change. Objects
that the snapshot does not have stay, unless --prune removes them. The command
does not touch services that now belong to the configuration file or a provider,
and ignores the health of endpoints that no longer exist. A second restore changes
nothing. In a group, any replica can do it. The admin interface must be writable.

Without --force, the server refuses a drain if the remaining capacity can't carry
the traffic, as with "isobar health set". The command restores the other entries,
lists the refused ones with the reasons, and ends with exit status 1. --dry-run
asks the server about each drain alone; several drains together may be refused
nevertheless.`,
		Example: "  isobar snapshot restore operators.json --dry-run\n  isobar snapshot restore operators.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			what, err := remote.Restoration(cmd.Context(), &s, prune)
			if err != nil {
				return err
			}
			switch {
			case !dry:
				err = remote.Restore(cmd.Context(), &what, force)
			case !force:
				err = remote.Rehearse(cmd.Context(), &what)
			}
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				err = writeJSON(cmd.OutOrStdout(), what)
			} else {
				err = writeRestoration(cmd.OutOrStdout(), &what, dry)
			}
			if n := len(what.Refused); err == nil && n > 0 && !dry {
				err = fmt.Errorf("the server refused %s of the snapshot; --force drains without the capacity check", plural.Count(n, "entry", "entries"))
			}
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would change, and change nothing")
	cmd.Flags().BoolVar(&prune, "prune", false, "also remove services, health and pauses that the snapshot does not have")
	cmd.Flags().BoolVar(&force, "force", false, "drain even if the remaining capacity can't carry the traffic")
	return cmd
}

func writeRestoration(w io.Writer, r *admin.Restoration, dry bool) error {
	var b strings.Builder
	would := ""
	if dry {
		would = "would be "
	}
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, name := range r.Put {
		line("service %s %swritten", printable(name), would)
	}
	for _, name := range r.Deleted {
		line("service %s %sdeleted", printable(name), would)
	}
	for _, h := range r.Health {
		if h.Status == isobar.Unknown {
			line("health of %s %s %scleared", printable(h.Service), printable(h.Address), would)
		} else {
			line("health of %s %s %sset to %s", printable(h.Service), printable(h.Address), would, h.Status)
		}
	}
	for _, name := range r.Resume {
		line("%s %sresumed", printable(pausedName(name)), would)
	}
	for _, p := range r.Pause {
		line("%s %spaused", printable(pausedName(p.Service)), would)
	}
	for _, name := range r.Foreign {
		line("warning: service %s has another owner now and stays as it is", printable(name))
	}
	for _, what := range r.Gone {
		line("warning: the health of %s is ignored: no service has this endpoint", printable(what))
	}
	for _, what := range r.Unchecked {
		line("warning: the drain of %s is not checked; the server may refuse it", printable(what))
	}
	for _, x := range r.Refused {
		line("%srefused: %s: %s", would, printable(x.What), printable(x.Why))
	}
	if r.Empty() && len(r.Refused) == 0 {
		line("nothing to change")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
