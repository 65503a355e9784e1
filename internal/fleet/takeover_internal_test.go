package fleet

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
)

// TestTakeoverIsNotTheLoss asserts that requests which the loss of a zone caught under way do not
// count as failures of the takeover, though they were due soon after the kill.
func TestTakeoverIsNotTheLoss(t *testing.T) {
	began, zone := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), isobar.MustLocality("us/a")
	r := NewRecorder(began, time.Second, []Zone{{Locality: zone, Capacity: 100}})
	s := Scenario{KillLeader: time.Second, OnStep: 13 * time.Second}
	fails := func(due, ended time.Duration) {
		r.Wanted(zone, began.Add(due))
		r.Record(Sample{Source: zone, Due: began.Add(due), Latency: ended - due, Failed: true, Cause: "Unavailable"})
	}
	fails(5*time.Second, 6*time.Second)
	fails(10*time.Second, 14*time.Second) // the zone was lost at 13 s
	var out TakeoverOutcome
	if out.count(r, &s); out.Failed != 1 || out.Requests != 2 {
		t.Errorf("%d of %d requests failed, want 1 of 2", out.Failed, out.Requests)
	}
}
