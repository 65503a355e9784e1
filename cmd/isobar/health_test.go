package main

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestHealthText: what operators see of verdicts, votes and checkers.
func TestHealthText(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	a := isobar.MustLocality("us/a")
	report := health.ServiceReport{
		Service: "checkout",
		Summary: health.Summary{Endpoints: 2, Healthy: 1, Down: 1, Divided: 1, OldestConfirmed: now.Add(-90 * time.Second)},
		Drained: []isobar.Locality{a},
		Endpoints: []health.Verdict{{
			Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Locality: a, Status: isobar.Timeout,
			Since: now.Add(-5 * time.Minute), Confirmed: now.Add(-2 * time.Second), Why: "2 of 3 say down", Divided: true, Zones: []isobar.Locality{a},
			Votes: []health.Vote{
				{Checker: "c1", Status: isobar.Timeout, Heard: now.Add(-time.Second), Fresh: true, Counts: true, Metadata: "{\"rtt_ms\":1.5}\x1b[2J"},
				{Checker: "c2", Status: isobar.Healthy, Heard: now.Add(-3 * time.Minute), Counts: true},
				{Checker: "c3"},
				{Checker: "c4", Status: isobar.Unhealthy, Heard: now, Fresh: true},
			},
		}},
	}
	var out strings.Builder
	if err := writeVerdicts(&out, &report, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"timeout, divided (down seen from us/a)", "c1=timeout", "c2=healthy(3m ago)", "c3=-", "c4=unhealthy(not counted yet)",
		"5m", "2 of 3 say down", "drained: us/a", "10.0.0.1:80, by c1: {\"rtt_ms\":1.5}\uFFFD[2J\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	out.Reset()
	list := admin.VerdictList{Services: []health.ServiceReport{report}, Checkers: []admin.Checker{{ID: "c1\x1b[31m", Locality: a, Protocols: "http+tcp", Designated: 2, LastReport: now.Add(-time.Second)}}}
	if err := writeHealth(&out, &list, now); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a checker's name reaches the terminal as it is: %q", out.String())
	}
	for _, want := range []string{"checkout", "2m", "1 divided", "http+tcp", "1s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := writeHealth(&out, &admin.VerdictList{}, now); err != nil || !strings.Contains(out.String(), "no service has health_checks") {
		t.Errorf("with nothing to show: %v %s", err, out.String())
	}
}
