package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plural"
)

// mostNet bounds the lines of what differs.
const mostNet = 20

// writeNet prints the shares after a span and before it, those with the largest
// difference first.
func writeNet(b *strings.Builder, n *admin.NetChange) {
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
	fmt.Fprintf(b, "after these %s, against before (requests at the present demand):\n", plural.Count(n.Counted, "change", "changes"))
	writeColumns(b, columns)
	if left > 0 {
		fmt.Fprintf(b, "and %s; GET /v1/history/net lists more\n", plural.Count(left, "other share", "other shares"))
	}
	if n.Counted < n.Count && n.Since != nil {
		fmt.Fprintf(b, "only the newest %d of %d changes are compared, from %s on\n", n.Counted, n.Count, n.Since.UTC().Format(time.RFC3339))
	}
	b.WriteString("\n")
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
