package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
)

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
