package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/archive"
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

// TestWhatDiffersIsShownFirst: shares before and after with their difference in requests, and a
// share that went back to what it was as unchanged.
func TestWhatDiffersIsShownFirst(t *testing.T) {
	share := func(x float64) *float64 { return &x }
	here, there := isobar.MustLocality("us/a"), isobar.MustLocality("eu/b")
	n := &admin.NetChange{Count: 1500, Counted: 1000, Since: &made, ServiceCount: 1, Services: []archive.NetService{{
		Service: "cart", DropAfter: 0.05, MoveCount: 5, Moves: []archive.NetMove{
			{Source: here, Locality: there, Before: share(0.12), After: share(0.15), Low: 0.1, High: 0.3, Changes: 12, Rate: share(40)},
			{Source: there, Locality: here, Before: share(0.2), After: share(0.2), Low: 0.12, High: 0.31, Changes: 14, Rate: share(0)},
			{Source: here, Locality: there, After: share(1), Low: 1, High: 1, Changes: 1},
		},
	}}}
	var b strings.Builder
	writeNet(&b, n)
	for _, want := range []string{
		"result of these 1000 changes, compared with the state before (requests at the current demand):",
		"cart - dropped 0.0% 5.0%",
		"cart us/a eu/b 12.0% 15.0% +40.0 12 changes, 10.0% to 30.0%",
		"cart eu/b us/a 20.0% unchanged - 14 changes, 12.0% to 31.0%",
		"cart us/a eu/b not there 100.0% - 1 change",
		"and 2 other shares",
		"the comparison covers only the newest 1000 of 1500 changes",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("no %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if writeNet(&b, &admin.NetChange{Count: 2, Counted: 2}); b.Len() > 0 {
		t.Errorf("nothing differs: %s", b.String())
	}
}

// TestEventsComeBeforeTheDifference: an outage that is over is said first, also where no share
// differs.
func TestEventsComeBeforeTheDifference(t *testing.T) {
	mark := func(trigger string) archive.Mark {
		return archive.Mark{Trigger: trigger, Made: made, Services: 1, Moved: 0.5, Most: "checkout"}
	}
	outage, configured, paused := mark(plan.TriggerHealth), mark(plan.TriggerTopology), mark(plan.TriggerOperator)
	outage.Why = "100.0% of the requests moved off us-east/a: no healthy endpoint"
	configured.Services = 3
	paused.Who, paused.Reason, paused.Most, paused.Services, paused.Moved = "ann", "pause: deployment.", "", 0, 0
	at := made.UTC().Format(time.RFC3339)
	for _, x := range []struct {
		event archive.Mark
		count int
		want  string
	}{
		{outage, 1, "Health of checkout changed at " + at + ": 100.0% of the requests moved off us-east/a: no healthy endpoint.\n\n"},
		{configured, 2, "The configuration of checkout and 2 other services changed at " + at + ": a client locality moved 50.0% of its traffic.\n" +
			"And 1 more change of health, of the configuration or by an operator.\n\n"},
		{paused, 3, "ann acted at " + at + ": pause: deployment.\nAnd 2 more changes of health, of the configuration or by an operator.\n\n"},
	} {
		var b strings.Builder
		writeNet(&b, &admin.NetChange{Count: 57, Counted: 57, EventCount: x.count, Events: []archive.Mark{x.event}})
		if b.String() != x.want {
			t.Errorf("got %q, want %q", b.String(), x.want)
		}
	}
}
