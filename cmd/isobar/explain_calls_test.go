package main

import (
	"strings"
	"testing"

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
  batch: 0.5 per request configured, can't tell how many it makes, 0.0/s
`
	if b.String() != want {
		t.Errorf("got %s, want %s", b.String(), want)
	}
	b.Reset()
	if writeRemarks(&b, &plan.Explanation{}); b.Len() > 0 {
		t.Errorf("of nothing: %s", b.String())
	}
}
