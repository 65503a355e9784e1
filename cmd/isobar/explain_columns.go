package main

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar/internal/plan"
)

// localityColumns are distance, price, cost and latency in milliseconds,
// capacity and load in requests/s.
func localityColumns(rows []plan.LocalityExplained) []column {
	number := func(x float64) string { return fmt.Sprintf("%.1f", x) }
	where := func(known bool, text string) string {
		if known {
			return text
		}
		return "-"
	}
	// Where no demand comes from there is no target, and nothing landed.
	wanted := slices.ContainsFunc(rows, func(r plan.LocalityExplained) bool { return r.Target > 0 })
	landed := slices.ContainsFunc(rows, func(r plan.LocalityExplained) bool { return r.ObservedShare > 0 })
	columns := []struct {
		head  string
		spare int
		cell  func(r *plan.LocalityExplained) string
	}{
		{"LOCALITY", 0, func(r *plan.LocalityExplained) string { return r.Locality.String() }},
		{"TIER", 4, func(r *plan.LocalityExplained) string { return where(r.Tier >= 0, fmt.Sprintf("P%d", r.Tier)) }},
		{"DIST", 1, func(r *plan.LocalityExplained) string { return number(r.Distance) }},
		{"PRICE", 2, func(r *plan.LocalityExplained) string { return where(r.Capacity > 0, number(r.Price)) }}, // nothing can be bought there
		{"COST", 0, func(r *plan.LocalityExplained) string { return where(r.Capacity > 0, number(r.Cost)) }},
		{"HEALTHY", 5, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%d/%d", r.Healthy, r.Endpoints) }},
		{"CAP", 1, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%.0f", r.Capacity) }},
		{"LOAD", 0, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%.0f", r.Load+r.UnmanagedLoad) }},
		{"USED", 1, func(r *plan.LocalityExplained) string { return percent(r.Utilization) }},
		{"CEIL", 6, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%.0f%%", 100*r.Ceiling) }},
		{"TARGET", 3, func(r *plan.LocalityExplained) string { return where(wanted, percent(r.Target)) }},
		{"SHARE", 0, func(r *plan.LocalityExplained) string { return percent(r.Published) }},
		{"OBSERVED", 2, func(r *plan.LocalityExplained) string { return where(landed, percent(r.ObservedShare)) }},
		{"LATENCY", 7, func(r *plan.LocalityExplained) string { return where(r.Latency > 0, number(r.Latency)) }},
	}
	out := make([]column, len(columns))
	for i, c := range columns {
		out[i] = column{head: c.head, spare: c.spare, cells: make([]string, len(rows))}
		for j := range rows {
			out[i].cells[j] = c.cell(&rows[j])
		}
	}
	return out
}
