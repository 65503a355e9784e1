package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

func markCommand() *cobra.Command {
	var flags remoteFlags
	var at string
	who := whoami()
	cmd := &cobra.Command{
		Use:   "mark [TEXT]",
		Short: "Mark a moment in charts, such as a deployment, or list the marks",
		Long: `Mark a moment in the charts and the history of the console, such as the start of a
deployment. Without TEXT, the command lists the marks, oldest first. The server keeps
the last 200 marks, in memory. In a group, all replicas get the mark. To mark
a moment, the admin interface must be writable.`,
		Example: "  isobar mark 'deployment of v42'\n  isobar mark 'load test begins' --at 2026-03-04T14:03:00Z\n  isobar mark",
		RunE: func(cmd *cobra.Command, args []string) error {
			o := admin.MarkRequest{Text: strings.Join(args, " "), Who: who}
			if at != "" {
				var err error
				if o.At, err = time.Parse(time.RFC3339, at); err != nil {
					return usagef("--at %s: want a time such as 2026-03-04T14:03:00Z", at)
				}
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			var list admin.MarkList
			if len(args) == 0 {
				list, err = remote.Marks(cmd.Context())
			} else {
				var one admin.SampleMark
				one, err = remote.Mark(cmd.Context(), o)
				list.Marks = []admin.SampleMark{one}
			}
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			return writeMarks(cmd.OutOrStdout(), list.Marks)
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&at, "at", "", "time within the last day, as in RFC 3339; default: now")
	cmd.Flags().StringVar(&who, "who", who, "name of the operator")
	return cmd
}

// writeMarks prints a line for each mark.
func writeMarks(w io.Writer, marks []admin.SampleMark) error {
	if len(marks) == 0 {
		_, err := fmt.Fprintln(w, "no moment is marked")
		return err
	}
	var b strings.Builder
	for i := range marks {
		m := &marks[i]
		fmt.Fprintf(&b, "%s  %s", m.At.UTC().Format(time.RFC3339), printable(m.Text))
		if m.Who != "" {
			fmt.Fprintf(&b, "  (%s)", printable(m.Who))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
