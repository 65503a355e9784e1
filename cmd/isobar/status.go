package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

// errAttention makes the exit status tell what the screen does.
var errAttention = errors.New("something needs attention")

func statusCommand() *cobra.Command {
	var flags remoteFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether everything is in order, and what needs attention",
		Long: `Show on one screen whether everything is in order: the plan in force, demand and
coverage, what is held or paused, the clients by state, and whether state can be
saved. What needs attention stands at the end, a line each; then the exit status
is 1, so that scripts can wait for order. A pause alone needs none.`,
		Example: "  isobar status\n  until isobar status >/dev/null; do sleep 5; done",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			s, err := remote.Status(cmd.Context())
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				err = writeJSON(cmd.OutOrStdout(), s)
			} else {
				_, err = io.WriteString(cmd.OutOrStdout(), statusText(&s))
			}
			if err == nil && !s.OK {
				err = errAttention
			}
			return err
		},
	}
	flags.register(cmd)
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
	line("services", "%d, %.0f requests/s, coverage %s", s.Services, s.Demand, percent(s.Coverage))
	for _, h := range s.Holds {
		line("held", "%s: %s", printable(h.Service), printable(h.Reason))
	}
	for _, p := range s.Paused {
		line("paused", "%s: %s", orAll(p.Service), printable(p.String()))
	}
	c := &s.Clients
	line("clients", "%d: %d in sync, %d behind, %d refusing; %d report load", c.Total, c.InSync, c.Behind, c.Refusing, c.Reporting)
	if c.OldestAckSeconds > 0 {
		line("oldest", "%s has not acknowledged for %s", orDash(c.OldestAck), age(c.OldestAckSeconds))
	}
	line("checkers", "%d", s.Checkers)
	if a := s.Auto; a != nil {
		line("auto", "%d observe, %d bounded, %d full; %d went back", a.Observe, a.Bounded, a.Full, a.Back)
	}
	if sc := s.Scores; sc != nil {
		line("score", "%.3f at the least, of %s; %s scored", sc.Lowest, printable(sc.Service), count(sc.Services, "service is", "services are"))
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
	if s.OK {
		b.WriteString("\nall in order\n")
		return b.String()
	}
	b.WriteString("\nneeds attention:\n")
	for _, text := range s.Attention {
		fmt.Fprintf(&b, "  %s\n", printable(text))
	}
	return b.String()
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
	line("unknown", "clients report load on clusters that are no services: %s%s", strings.Join(names, ", "), more)
}

// writeReserves tells which services would not stand the loss of a zone.
func writeReserves(line func(name, format string, args ...any), r *admin.ReserveSummary) {
	switch {
	case r == nil, r.Services == 0: // nothing was played: there is no traffic, or no declared capacity
		return
	case r.Failing == 0:
		line("n-1", "%s the loss of any zone, checked %s ago", count(r.Services, "service stands", "services stand"), age(r.AgeSeconds))
		return
	}
	line("n-1", "%d of %s would not stand the loss of a zone, checked %s ago", r.Failing, count(r.Services, "service", "services"), age(r.AgeSeconds))
	for i := range r.Worst {
		w := &r.Worst[i]
		text := fmt.Sprintf("%s at %s of its ceiling", w.Fullest, percent(w.Utilization))
		switch {
		case w.Drop >= 1:
			text = "nothing healthy is left"
		case w.Drop > 0:
			text += ", " + percent(w.Drop) + " dropped"
		}
		line("", "%s without %s: %s", printable(w.Service), w.Lost, text)
	}
}

func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
