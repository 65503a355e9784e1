package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

// writeMomentAt shows what stood at a moment.
func writeMomentAt(cmd *cobra.Command, remote *admin.Remote, flags *remoteFlags, service, text string) error {
	at, err := parseMoment(text, time.Now())
	if err != nil {
		return asUsage(cmd, err)
	}
	m, err := remote.MomentAt(cmd.Context(), service, at)
	if err != nil {
		return err
	}
	if flags.output == outputJSON {
		return writeJSON(cmd.OutOrStdout(), m)
	}
	return writeMoment(cmd.OutOrStdout(), &m, service, widthOf(cmd.OutOrStdout()))
}

// writeSpan lists what changed from a moment on.
func writeSpan(cmd *cobra.Command, remote *admin.Remote, flags *remoteFlags, service, text string, span time.Duration) error {
	from, err := parseMoment(text, time.Now())
	switch {
	case text == "":
		err = errors.New("--for requires --at, the start of the period")
	case span < 0:
		err = fmt.Errorf("--for %s: want a duration such as 1m", span)
	}
	if err != nil {
		return asUsage(cmd, err)
	}
	found, err := remote.Span(cmd.Context(), service, from, from.Add(span))
	if err != nil {
		return err
	}
	if flags.output == outputJSON {
		return writeJSON(cmd.OutOrStdout(), found)
	}
	var b strings.Builder
	if found.Count > 1 {
		differs, err := remote.NetChange(cmd.Context(), service, from, from.Add(span))
		if err != nil {
			return err
		}
		writeNet(&b, &differs)
	}
	columns := []column{{head: "VERSION"}, {head: "TIME"}, {head: "TRIGGER"}, {head: "SERVICES"}, {head: "MOST"}, {head: "MOVED"}, {head: "WHY"}}
	for i := range found.Changes {
		m := &found.Changes[i]
		why := m.Why
		if m.Trigger == plan.TriggerOperator {
			why = m.Who + ": " + m.Reason
		}
		cells := []string{
			strconv.FormatUint(m.Version, 10), m.Made.UTC().Format(time.RFC3339), m.Trigger, strconv.Itoa(m.Services), orDash(printable(m.Most)),
			fmt.Sprintf("%.1f", 100*m.Moved), orDash(printable(why)),
		}
		for k := range columns {
			columns[k].cells = append(columns[k].cells, cells[k])
		}
	}
	if len(found.Changes) > 0 {
		writeColumns(&b, columns)
	}
	fmt.Fprintf(&b, "%s from %s to %s", plural.Count(found.Count, "change", "changes"), found.From.Format(time.RFC3339), found.To.Format(time.RFC3339))
	if len(found.Changes) < found.Count {
		fmt.Fprintf(&b, "; these are the %d largest", len(found.Changes))
	}
	b.WriteString("\n")
	_, err = io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

// parseMoment reads a time with its date, or a time of day within the last 24 hours.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		clock, err := time.ParseInLocation(layout, text, now.Location())
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("--at %q: want a time such as 2026-01-31T14:03:00Z or 14:03", text)
}

// writeMoment prints the change that stood, its neighbours, and the shares of a service.
func writeMoment(w io.Writer, m *admin.Moment, service string, width int) error {
	var b strings.Builder
	c := m.Change
	if c == nil {
		fmt.Fprintf(&b, "the history has no change at or before %s", m.At.UTC().Format(time.RFC3339))
		if m.Next != nil {
			fmt.Fprintf(&b, "; the next change is of %s", m.Next.UTC().Format(time.RFC3339))
		}
		b.WriteString("\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "version %d, %s, %s: change %d of %d\n", c.Version, c.Made.UTC().Format(time.RFC3339), c.Trigger, m.Number, m.Count)
	if c.Trigger == plan.TriggerOperator {
		fmt.Fprintf(&b, "%s\n", printable(c.Who+": "+c.Reason))
	}
	fmt.Fprintf(&b, "%s changed; a source moved at most %s of its traffic\n", plural.Count(c.Services, "service", "services"), percent(c.Moved))
	if c.Why != "" {
		fmt.Fprintf(&b, "%s: %s\n", printable(c.Most), printable(c.Why))
	}
	for _, x := range []struct {
		name string
		at   *time.Time
	}{{"before", m.Before}, {"next", m.Next}} {
		if x.at != nil {
			fmt.Fprintf(&b, "%s: --at %s\n", x.name, x.at.UTC().Format(time.RFC3339Nano))
		}
	}
	if m.Shares != nil {
		fmt.Fprintf(&b, "\nshares of %s then", printable(service))
		if m.Shares.Drop > 0 {
			fmt.Fprintf(&b, "; %s dropped", percent(m.Shares.Drop))
		}
		b.WriteString("\n")
		columns, _ := fitColumns(momentColumns(m), width)
		writeColumns(&b, columns)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// momentColumns has a row for each source and a column for each locality.
func momentColumns(m *admin.Moment) []column {
	columns := []column{{head: "FROM"}}
	for i, l := range m.Shares.Localities {
		columns = append(columns, column{head: orDash(l.String()), spare: i + 1})
	}
	for i := range m.Shares.Sources {
		s := &m.Shares.Sources[i]
		columns[0].cells = append(columns[0].cells, orDash(s.Source.String()))
		for k, share := range s.Shares {
			columns[k+1].cells = append(columns[k+1].cells, percent(share))
		}
	}
	return columns
}
