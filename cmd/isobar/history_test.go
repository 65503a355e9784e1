package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestHistoryOfManyServices: a change of a whole fleet takes some lines, those
// that moved farthest first, and tells how many it leaves out.
func TestHistoryOfManyServices(t *testing.T) {
	var services []plan.ServiceChange
	for i := range 300 {
		moved := uint16(i % 100 * 50)
		services = append(services, plan.ServiceChange{
			Service: fmt.Sprintf("svc-%03d", i), Reason: "to the solver's target",
			Sites:   []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")},
			Sources: []plan.SourceChange{{Source: isobar.MustLocality("us/a"), Before: []uint16{10000, 0}, After: []uint16{10000 - moved, moved}}},
		})
	}
	few := plan.Change{Version: 6, Made: made, Trigger: plan.TriggerTick, Services: services[:10]}
	many := plan.Change{Version: 7, Made: made, Trigger: plan.TriggerTick, Services: services}
	var out strings.Builder
	if err := writeHistory(&out, &admin.ChangeList{Version: "7", Changes: []plan.Change{many, few}}, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1+11+10+1 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for line, want := range map[int][]string{
		1:  {"svc-099", "49.5"},
		3:  {"svc-299", "49.5"},
		4:  {"svc-098", "49.0"},
		11: {"and 290 more", "isobar history SERVICE"},
		12: {"svc-000", "0.0"},
		21: {"svc-009", "4.5"},
	} {
		for _, part := range want {
			if !strings.Contains(lines[line], part) {
				t.Errorf("line %d has no %q:\n%s", line, part, lines[line])
			}
		}
	}
}
