package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
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
			fmt.Fprintf(&b, "columns that did not fit: %s\n", strings.Join(left, ", "))
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

// shedColumn is after which column those of the classes come.
const shedColumn = "SHED"

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
	{shedColumn, shedSpare, func(r *sim.Result) string { return percentText(r.Shed) }},
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
	table := resultTableOf(results)
	out := make([]column, len(table))
	for i, c := range table {
		out[i] = column{head: c.head, spare: c.spare}
		for _, r := range results {
			out[i].cells = append(out[i].cells, c.cell(r))
		}
	}
	return out
}

// resultTableOf is the table with what is shed of each class of clients, where
// there are any.
func resultTableOf(results []*sim.Result) []resultColumn {
	at := 1 + slices.IndexFunc(resultTable, func(c resultColumn) bool { return c.head == shedColumn })
	var of []resultColumn
	for _, class := range classesOf(results) {
		of = append(of, resultColumn{shedColumn + " " + strings.ToUpper(class.String()), shedSpare, func(r *sim.Result) string {
			return percentText(shedOf(r.Classes, class))
		}})
	}
	return slices.Insert(slices.Clone(resultTable), at, of...)
}

const shedSpare = 3

// classesOf lists the classes of which results tell, from the one that is shed
// last.
func classesOf(results []*sim.Result) []isobar.Class {
	var out []isobar.Class
	for _, r := range results {
		for _, c := range r.Classes {
			out = append(out, c.Class)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shedOf is what is shed of a class, as a fraction of its requests.
func shedOf(classes []sim.ClassShare, class isobar.Class) float64 {
	for _, c := range classes {
		if c.Class == class {
			return c.Shed
		}
	}
	return 0
}
