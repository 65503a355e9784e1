package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
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
		fmt.Fprintf(&b, "  %s %.1f/s\n", sourceName(sources[i].Source), sources[i].Demand)
	}
	if more := len(sources) - mostSources; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

func sourceName(l isobar.Locality) string {
	if l.IsZero() {
		return "clients without a locality"
	}
	return printable(l.String()) // as clients call it
}

// sourceList is what `isobar explain SERVICE -o json` prints.
type sourceList struct {
	Service string             `json:"service"`
	Version string             `json:"version"` // of the plan
	Sources []admin.SourceView `json:"sources"` // the largest demand first
}

// listSources prints the client localities of a service, and where they send.
func listSources(cmd *cobra.Command, remote *admin.Remote, service string, output outputFormat) error {
	view, err := remote.Plan(cmd.Context(), service)
	if err != nil {
		return err
	}
	list := sourceList{Service: service, Version: view.Version, Sources: []admin.SourceView{}}
	if len(view.Services) == 1 {
		list.Sources = append(list.Sources, view.Services[0].Sources...)
	}
	byLargest(list.Sources)
	if output == outputJSON {
		return writeJSON(cmd.OutOrStdout(), list)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), list.text())
	return err
}

// text is a table of the sources, and the command that tells more.
func (l *sourceList) text() string {
	var b strings.Builder
	if len(l.Sources) == 0 {
		const none = "%s, plan %s: no load was reported, and no client asked for it; --from REGION/ZONE tells what clients there would get\n"
		return fmt.Sprintf(none, l.Service, l.Version)
	}
	total := 0.0
	for i := range l.Sources {
		total += l.Sources[i].Demand
	}
	fmt.Fprintf(&b, "%s, plan %s: %s requests/s from %s\n\n", l.Service, l.Version, rate(total), count(len(l.Sources), "locality", "localities"))
	writeColumns(&b, sourceColumns(l.Sources))
	from := `""`
	if at := l.Sources[0].Source; !at.IsZero() {
		from = admin.ShellWord(printable(at.String()))
	}
	fmt.Fprintf(&b, "\nWhy: isobar explain %s --from %s\n", l.Service, from)
	return b.String()
}

func byLargest(sources []admin.SourceView) {
	slices.SortStableFunc(sources, func(a, b admin.SourceView) int { return cmp.Compare(b.Demand, a.Demand) })
}

// sourceColumns are those of the table of sources.
func sourceColumns(sources []admin.SourceView) []column {
	columns := []column{{head: "FROM"}, {head: "REQ/S"}, {head: "SENT TO"}}
	for i := range sources {
		s := &sources[i]
		columns[0].cells = append(columns[0].cells, sourceName(s.Source))
		columns[1].cells = append(columns[1].cells, rate(s.Demand))
		columns[2].cells = append(columns[2].cells, sharesText(s.Shares))
	}
	return columns
}

// sharesText lists where requests are sent, the largest share first.
func sharesText(shares []admin.ShareView) string {
	shares = slices.DeleteFunc(slices.Clone(shares), func(s admin.ShareView) bool { return s.Published <= 0 })
	slices.SortStableFunc(shares, func(a, b admin.ShareView) int { return cmp.Compare(b.Published, a.Published) })
	parts := make([]string, len(shares))
	for i, s := range shares {
		parts[i] = s.Locality.String() + " " + percent(s.Published)
	}
	return orDash(strings.Join(parts, ", "))
}
