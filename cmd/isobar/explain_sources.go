package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// mostSources bounds how many sources are named beneath an explanation.
const mostSources = 10

// writeSources tells who asked about a place that sends nothing which ones do.
func writeSources(cmd *cobra.Command, remote *admin.Remote, e *plan.Explanation) error {
	if e.Demand.Rate > 0 || e.Demand.Measured || e.Demand.Saved > 0 || e.Demand.Service <= 0 {
		return nil
	}
	sources, err := remote.Sources(cmd.Context(), e.Service)
	if err != nil {
		return fmt.Errorf("asking for the sources of %s: %w", e.Service, err)
	}
	if text := sourcesText(sources); text != "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nDemand comes from (see --from)\n%s", text)
	}
	return err
}

// sourcesText has a line for each source with demand, the largest first.
func sourcesText(sources []admin.SourceView) string {
	sources = slices.DeleteFunc(slices.Clone(sources), func(s admin.SourceView) bool { return s.Demand <= 0 })
	slices.SortStableFunc(sources, func(a, b admin.SourceView) int { return cmp.Compare(b.Demand, a.Demand) })
	var b strings.Builder
	for i := range sources[:min(len(sources), mostSources)] {
		where := "clients without a locality"
		if !sources[i].Source.IsZero() {
			where = sources[i].Source.String()
		}
		fmt.Fprintf(&b, "  %s %.1f/s\n", where, sources[i].Demand)
	}
	if more := len(sources) - mostSources; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}
