package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

func TestExplainNamesTheCallers(t *testing.T) {
	e := &plan.Explanation{Calls: []plan.CallSeen{
		{Caller: "checkout", PerRequest: 2, Measured: 1.954, Rate: 390.84, Used: true},
		{Caller: "search", Measured: 0.1, Rate: 20},
		{Caller: "batch", PerRequest: 0.5},
	}}
	var b strings.Builder
	writeRemarks(&b, e)
	want := `
Called by
  checkout: 2 per request configured, 1.95 measured, 390.8/s; demand is computed from what it serves
  search: not configured, 0.1 measured, 20.0/s
  batch: 0.5 per request configured, measurement inconclusive, 0.0/s
`
	if b.String() != want {
		t.Errorf("got %s, want %s", b.String(), want)
	}
	b.Reset()
	if writeRemarks(&b, &plan.Explanation{}); b.Len() > 0 {
		t.Errorf("of nothing: %s", b.String())
	}
}

func TestSourcesText(t *testing.T) {
	sources := []admin.SourceView{{Demand: 5}, {Source: isobar.MustLocality("eu/a"), Demand: 0}, {Source: isobar.MustLocality("us/a"), Demand: 70.25}}
	if got, want := sourcesText(sources), "  us/a 70.2/s\n  clients without a locality 5.0/s\n"; got != want {
		t.Errorf("got %q", got)
	}
	if got := sourcesText(sources[1:2]); got != "" {
		t.Errorf("nothing comes from anywhere: %q", got)
	}
	var many []admin.SourceView
	for i := range 25 {
		many = append(many, admin.SourceView{Source: isobar.MustLocality(fmt.Sprintf("us/z%d", i)), Demand: float64(i + 1)})
	}
	got := sourcesText(many)
	if strings.Count(got, "\n") != mostSources+1 || !strings.HasPrefix(got, "  us/z24 25.0/s\n") || !strings.HasSuffix(got, "  and 15 more\n") {
		t.Errorf("got %q", got)
	}
}

// Clients choose what their locality is called: it may not control the terminal, add
// lines, or become a command.
func TestSourcesOfOddLocalities(t *testing.T) {
	list := sourceList{Service: "cart", Version: "7", Sources: []admin.SourceView{
		{Source: isobar.Locality{Region: "$(reboot)", Zone: "\x1b[2J\r\n"}, Demand: 9}, {Source: isobar.Locality{Region: "\x1b]0;x\a", Zone: "b\nc"}, Demand: 5},
	}}
	for what, got := range map[string]string{"list": list.text(), "explanation": sourcesText(list.Sources)} {
		if strings.ContainsAny(got, "\x1b\r\a") || strings.Contains(got, "\nc") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := list.text(); !strings.Contains(got, "--from '$(reboot)/") {
		t.Errorf("the command is not safe to paste: %q", got)
	}
}

// TestColumnsOfAPlaceThatSendsNothing: there is no target for it, and nothing
// landed; 0% would look as if it went elsewhere.
func TestColumnsOfAPlaceThatSendsNothing(t *testing.T) {
	rows := []plan.LocalityExplained{{Locality: isobar.MustLocality("us/a"), Published: 1}, {Locality: isobar.MustLocality("us/b")}}
	cells := func(head string) []string {
		for _, c := range localityColumns(rows) {
			if c.head == head {
				return c.cells
			}
		}
		return nil
	}
	for head, want := range map[string][]string{"TARGET": {"-", "-"}, "OBSERVED": {"-", "-"}, "SHARE": {"100.0%", "0.0%"}} {
		if got := cells(head); !slices.Equal(got, want) {
			t.Errorf("%s: %q", head, got)
		}
	}
	rows[0].Target, rows[1].ObservedShare = 1, 1
	if got := append(cells("TARGET"), cells("OBSERVED")...); !slices.Equal(got, []string{"100.0%", "0.0%", "0.0%", "100.0%"}) {
		t.Errorf("with demand: %q", got)
	}
}
