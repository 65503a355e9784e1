package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

// mostNet bounds the lines of what differs.
const mostNet = 20

// writeNet prints what set changes off, then the shares after a span and before it, those
// with the largest difference first. The difference hides an outage that is over.
func writeNet(b *strings.Builder, n *admin.NetChange) {
	writeEvents(b, n)
	columns := []column{{head: "SERVICE"}, {head: "FROM"}, {head: "TO"}, {head: "BEFORE"}, {head: "AFTER"}, {head: "REQ/S"}, {head: "BETWEEN"}}
	lines, left := 0, 0
	add := func(cells []string) {
		if lines == mostNet {
			left++
			return
		}
		lines++
		for c, cell := range cells {
			columns[c].cells = append(columns[c].cells, cell)
		}
	}
	for i := range n.Services {
		s := &n.Services[i]
		if before, after := percent(s.DropBefore), percent(s.DropAfter); before != after {
			add([]string{printable(s.Service), "-", "dropped", before, after, "-", "-"})
		}
		left += s.MoveCount - len(s.Moves)
		for k := range s.Moves {
			add(netCells(s.Service, &s.Moves[k]))
		}
	}
	if lines == 0 {
		return
	}
	fmt.Fprintf(b, "result of these %s, compared with the state before (requests at the current demand):\n", plural.Count(n.Counted, "change", "changes"))
	writeColumns(b, columns)
	if left > 0 {
		fmt.Fprintf(b, "and %s; GET /v1/history/net lists more\n", plural.Count(left, "other share", "other shares"))
	}
	if n.Counted < n.Count && n.Since != nil {
		fmt.Fprintf(b, "the comparison covers only the newest %d of %d changes, from %s on\n", n.Counted, n.Count, n.Since.UTC().Format(time.RFC3339))
	}
	b.WriteString("\n")
}

// writeEvents prints the largest change of health, of the configuration or by an operator, and
// how many more there are.
func writeEvents(b *strings.Builder, n *admin.NetChange) {
	if len(n.Events) == 0 {
		return
	}
	b.WriteString(printable(eventText(&n.Events[0])) + ".\n")
	if more := n.EventCount - 1; more > 0 {
		fmt.Fprintf(b, "And %s of health, of the configuration or by an operator.\n", plural.Count(more, "more change", "more changes"))
	}
	b.WriteString("\n")
}

// eventText returns the sentence about a change that the console shows, too.
func eventText(m *archive.Mark) string {
	named := func(word string) string {
		name := cmp.Or(m.About, m.Most)
		switch {
		case name == "":
			return ""
		case m.Services > 1:
			name += " and " + plural.Count(m.Services-1, "other service", "other services")
		}
		return " " + word + " " + name
	}
	what, why := "Health"+named("of")+" changed", m.Why
	switch m.Trigger {
	case plan.TriggerTopology:
		what = "The configuration" + named("of") + " changed"
	case plan.TriggerOperator:
		what, why = cmp.Or(m.Who, "An operator")+" acted"+named("on"), m.Reason
	}
	if why == "" && m.Moved > 0 {
		why = "a client locality moved " + percent(m.Moved) + " of its traffic"
	}
	what += " at " + m.Made.UTC().Format(time.RFC3339)
	if why != "" {
		what += ": " + strings.TrimSuffix(why, ".")
	}
	return what
}

func netCells(service string, m *archive.NetMove) []string {
	side := func(x *float64, none string) string {
		if x == nil {
			return none
		}
		return percent(*x)
	}
	before, after, rate := side(m.Before, "not there"), side(m.After, "gone"), "-"
	if m.Before != nil && before == after {
		after = "unchanged"
	}
	if m.Rate != nil && math.Abs(*m.Rate) >= 0.05 {
		rate = fmt.Sprintf("%+.1f", *m.Rate)
	}
	between := plural.Count(m.Changes, "change", "changes")
	if low, high := percent(m.Low), percent(m.High); m.Changes > 1 {
		between += fmt.Sprintf(", %s to %s", low, high)
	}
	return []string{printable(service), orDash(m.Source.String()), orDash(m.Locality.String()), before, after, rate, between}
}
