package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// verdict prints what became of all, and gives an error where too little was
// caught or the list is wrong.
func verdict(out io.Writer, results []result) error {
	byArea := map[string]map[outcome]int{}
	total := map[outcome]int{}
	for i := range results {
		x := &results[i]
		if byArea[x.area()] == nil {
			byArea[x.area()] = map[outcome]int{}
		}
		byArea[x.area()][x.outcome]++
		total[x.outcome]++
	}
	var areas []string
	for a := range byArea {
		areas = append(areas, a)
	}
	slices.SortFunc(areas, cmp.Compare)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\narea\tcaught\tsurvived\tbroken\t\n")
	for _, a := range areas {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", a, byArea[a][caught], byArea[a][survived], byArea[a][broken])
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", total[caught], total[survived], total[broken])
	if err := w.Flush(); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	for i := range results {
		if x := &results[i]; x.outcome != caught {
			_, _ = fmt.Fprintf(out, "%s: %s in %s: %s\n", x.outcome, x.Name, x.File, x.why)
		}
	}
	if total[broken] > 0 {
		return fmt.Errorf("mutants: %d bugs of the list don't fit the code any more", total[broken])
	}
	share := float64(total[caught]) / float64(max(1, len(results)))
	_, _ = fmt.Fprintf(out, "%.1f%% of %d bugs are caught\n", 100*share, len(results))
	if share < enough {
		return fmt.Errorf("mutants: %.1f%% of the bugs are caught, want %.0f%%: write the tests that are missing", 100*share, 100*enough)
	}
	return nil
}
