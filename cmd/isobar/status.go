package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plural"
)

// errAttention makes the exit status tell what the screen does.
var errAttention = errors.New("something needs attention")

// unaskedError says that nothing is known, because the server did not answer.
type unaskedError struct{ error }

func (e unaskedError) Unwrap() error { return e.error }

func statusCommand() *cobra.Command {
	var flags remoteFlags
	strict := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the server, and what needs attention",
		Long: `Show the state of the server on one screen: the plan in force, demand and
coverage, holds and pauses, the clients by state, and whether the server can save
its state. The list of problems is at the end, the most severe first, each with
its severity and, if there is one, the command to run next:

  critical  requests fail, or state or safety is lost
  warning   something does not work as intended
  notice    information; everything works

The exit status tells scripts:

  0  no problems; there may be notices
  1  there is a critical problem or a warning; with --strict also if there is a notice
  2  the command line is wrong
  3  the server did not answer, so its state is unknown`,
		Example: "  isobar status\n  until isobar status >/dev/null; do sleep 5; done",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			s, err := remote.Status(cmd.Context())
			if err != nil {
				return unaskedError{err}
			}
			if flags.output == outputJSON {
				err = writeJSON(cmd.OutOrStdout(), s)
			} else {
				_, err = io.WriteString(cmd.OutOrStdout(), statusText(&s))
			}
			if err == nil && (!s.OK || strict && len(s.Attention) > 0) {
				err = errAttention
			}
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "also exit with status 1 for notices")
	return cmd
}

// statusText is the screen of a status.
func statusText(s *admin.Status) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if s.Version == "" {
		line("plan", "none yet")
	} else {
		line("plan", "%s, made %s ago", printable(s.Version), age(s.AgeSeconds))
	}
	line("services", "%d, %.0f requests/s, coverage %s", s.Services, s.Demand, coverage(s.Demand, s.Coverage, 1))
	for _, h := range s.Holds {
		line("held", "%s: %s", printable(h.Service), printable(h.Reason))
	}
	for _, p := range s.Paused {
		line("paused", "%s: %s", orAll(p.Service), printable(p.String()))
	}
	c := &s.Clients
	line("clients", "%d on %s: %d in sync, %d behind, %d refusing; %d reporting load",
		c.Total, plural.Count(c.Streams, "stream", "streams"), c.InSync, c.Behind, c.Refusing, c.Reporting)
	if c.OldestAckSeconds > 0 {
		line("oldest", "%s has not acknowledged for %s", orDash(c.OldestAck), age(c.OldestAckSeconds))
	}
	line("checkers", "%d", s.Checkers)
	if a := s.Auto; a != nil {
		line("auto", "%d observe, %d bounded, %d full; %d stepped back", a.Observe, a.Bounded, a.Full, a.Back)
	}
	if sc := s.Scores; sc != nil {
		line("score", "lowest %.3f, of %s; %s scored", sc.Lowest, printable(sc.Service), plural.Count(sc.Services, "service is", "services are"))
	}
	writeReserves(line, s.N1)
	writeUnknown(line, s.UnknownClusters)
	if len(s.Unsaved) == 0 {
		line("state", "saved")
	} else {
		line("state", "NOT SAVED")
	}
	for i := range s.Certificates {
		c := &s.Certificates[i]
		line("tls", "%s: certificate until %s", printable(c.Name), c.NotAfter.UTC().Format(time.RFC3339))
	}
	writeAttention(&b, s)
	return b.String()
}

// mostAttention bounds the items on the screen; JSON has more.
const mostAttention = 20

// writeAttention lists what needs attention, or says that nothing does.
func writeAttention(b *strings.Builder, s *admin.Status) {
	switch {
	case s.OK:
		b.WriteString("\nno problems\n")
		if len(s.Attention) > 0 {
			b.WriteString("\nworth knowing:\n")
		}
	default:
		b.WriteString("\nneeds attention:\n")
	}
	shown := s.Attention[:min(len(s.Attention), mostAttention)]
	for i := range shown {
		a := &shown[i]
		fmt.Fprintf(b, "  %-8s  %s\n", printable(string(a.Severity)), printable(a.Text))
		if a.Next != "" && !strings.Contains(a.Text, a.Next) {
			fmt.Fprintf(b, "  %-8s  > %s\n", "", printable(a.Next))
		}
	}
	if n := len(s.Attention) - len(shown) + s.More; n > 0 {
		fmt.Fprintf(b, "  and %d more: isobar status -o json lists up to 100\n", n)
	}
}

// writeUnknown names clusters in load reports that are no services. They are no
// reason for concern where another control plane manages clusters of its own.
func writeUnknown(line func(name, format string, args ...any), clusters []string) {
	const most = 5
	if len(clusters) == 0 {
		return
	}
	names := make([]string, min(len(clusters), most))
	for i := range names {
		names[i] = printable(clusters[i])
	}
	more := ""
	if n := len(clusters) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	line("unknown", "clients report load for clusters that are not services: %s%s", strings.Join(names, ", "), more)
}

// writeReserves prints which services would not survive the loss of a zone.
func writeReserves(line func(name, format string, args ...any), r *admin.ReserveSummary) {
	switch {
	case r == nil, r.Services == 0: // nothing was played: there is no traffic, or no declared capacity
		return
	case r.Failing == 0:
		line("n-1", "%s the loss of any zone%s, checked %s ago", plural.Count(r.Services, "service survives", "services survive"), atLimit(r), age(r.AgeSeconds))
		return
	}
	line("n-1", "%d of %s would not survive the loss of a zone%s, checked %s ago",
		r.Failing, plural.Count(r.Services, "service", "services"), atLimit(r), age(r.AgeSeconds))
	for i := range r.Worst {
		w := &r.Worst[i]
		text := w.Fill()
		switch {
		case w.Drop >= 1:
			text = "no healthy endpoint is left"
		case w.Drop > 0:
			text += ", " + percent(w.Drop) + " dropped"
		}
		line("", "%s without %s: %s", printable(w.Service), w.Lost, text)
	}
}

// atLimit counts the services that survive the loss of a zone, but are at their limit, in words; empty for none.
func atLimit(r *admin.ReserveSummary) string {
	if r.AtLimit == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d at the limit)", r.AtLimit)
}

func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
