package main

import (
	"fmt"
	"strings"

	"github.com/isobar-xds/isobar/internal/sim"
)

// simulationTables prints results for people; width 0 is any.
func simulationTables(all []simulation, width int) string {
	var b strings.Builder
	for i := range all {
		s := &all[i]
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s", s.Name)
		if s.Title != "" {
			fmt.Fprintf(&b, ": %s", s.Title)
		}
		fmt.Fprintf(&b, " (seed %d)\n", s.Seed)
		columns, left := fitColumns(resultColumns(s.Results), width)
		writeColumns(&b, columns)
		if len(left) > 0 {
			fmt.Fprintf(&b, "left out for want of room: %s\n", strings.Join(left, ", "))
		}
	}
	return b.String()
}

// resultColumn is one figure of a result.
type resultColumn struct {
	head  string
	spare int
	cell  func(r *sim.Result) string
}

var resultTable = []resultColumn{
	{"POLICY", 0, func(r *sim.Result) string { return r.Policy }},
	{"MEAN MS", 0, func(r *sim.Result) string { return fmt.Sprintf("%.2f", r.MeanMS) }},
	{"P50", 5, func(r *sim.Result) string { return fmt.Sprintf("%.1f", r.P50MS) }},
	{"P99", 0, func(r *sim.Result) string { return fmt.Sprintf("%.0f", r.P99MS) }},
	{"FULLEST", 0, func(r *sim.Result) string { return percentText(r.Fullest) }},
	{"PEAK", 1, func(r *sim.Result) string { return percentText(r.Peak) }},
	{"USED", 6, func(r *sim.Result) string { return percentText(r.Utilization) }},
	{"X-ZONE", 4, func(r *sim.Result) string { return percentText(r.CrossZone) }},
	{"X-REGION", 2, func(r *sim.Result) string { return percentText(r.CrossRegion) }},
	{"$/HOUR", 7, func(r *sim.Result) string { return fmt.Sprintf("%.2f", r.DollarsHour) }},
	{"SHED", 3, func(r *sim.Result) string { return percentText(r.Shed) }},
	{"FAILED", 0, func(r *sim.Result) string { return percentText(r.Failed) }},
	{"CHURN", 8, func(r *sim.Result) string { return fmt.Sprintf("%.1f", r.Churn) }},
	{"SETTLE S", 3, func(r *sim.Result) string {
		if r.Settle < 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", r.Settle)
	}},
}

func percentText(x float64) string {
	if x == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.1f%%", 100*x)
}

func resultColumns(results []*sim.Result) []column {
	out := make([]column, len(resultTable))
	for i, c := range resultTable {
		out[i] = column{head: c.head, spare: c.spare}
		for _, r := range results {
			out[i].cells = append(out[i].cells, c.cell(r))
		}
	}
	return out
}
