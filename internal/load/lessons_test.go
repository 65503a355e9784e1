package load_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
)

// What clients are known to report wrongly, one test each.

// Envoy counts a request whose response has begun as a success and, until its
// stream is destroyed, as one in progress too. Who adds these up sees more load
// the slower streams are destroyed.
func TestRequestsInFlightCountOnce(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	for i := 1; i <= 10; i++ {
		r := sent(interval, 500)
		r.Localities[0].InProgress = 400 // answered all of them
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), r))})
		near(t, "demand", demand(tab.Snapshot(at(float64(i)))), 100, 1e-6)
	}
}

// Envoy leaves a report out when nothing was issued in its interval, though
// requests ended in it or metrics came. So a report that is missing is not zero,
// and what ends later is not new.
func TestSkippedReportsAndLateEndings(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	for i := 1; i <= 5; i++ {
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), sent(interval, 500)))})
		tab.Snapshot(at(float64(i)))
	}
	tab.Merge([]load.StreamWindow{c.window()})
	near(t, "demand while a report is missing", demand(tab.Snapshot(at(6))), 100, 1e-6)
	// Requests that were counted when they were issued end.
	ends := sent(2*interval, 0)
	ends.Localities[0].Succeeded = 300
	tab.Merge([]load.StreamWindow{c.window(report(at(7), ends))})
	if got := tab.Snapshot(at(7)).Service("checkout").Source(zoneA).Raw; got > 1e-6 {
		t.Errorf("endings alone are a rate of %v, want 0", got)
	}
}

// gRPC in Go up to 1.50 opens its load reports again at each assignment, and the
// first report of a stream has no interval that could be believed. While weights
// change there is no other.
func TestClientThatReportsAnewAtEachAssignment(t *testing.T) {
	tab := table()
	for i := 1; i <= 20; i++ {
		c := newClient(load.StreamID(i), load.AgentGRPC)
		c.open = at(float64(i))
		unmeasured := sent(0, 500)
		unmeasured.Localities[0].HasIssued, unmeasured.Localities[0].Issued = false, 0
		now := at(float64(i + 1))
		tab.Merge([]load.StreamWindow{c.window(report(now, unmeasured))})
		near(t, "demand", demand(tab.Snapshot(now)), 100, 1e-6)
		tab.Merge([]load.StreamWindow{c.closed(now.Add(time.Millisecond))})
	}
}
