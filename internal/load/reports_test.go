package load_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// counted is what Envoy counts of one locality in an interval.
type counted struct {
	issued, success, errors uint64
	inProgress              uint32
	dropped, categorised    uint64
}

func (c counted) report() load.ServiceReport {
	r := load.ServiceReport{Service: "checkout", Interval: interval, Dropped: c.dropped, Localities: []load.LocalityReport{{
		Locality: &zoneB, Issued: c.issued, HasIssued: c.issued > 0, Succeeded: c.success, Errors: c.errors, InProgress: c.inProgress,
	}}}
	if c.categorised > 0 {
		r.DroppedBy = []load.DropCount{{Category: "isobar", Count: c.categorised}}
	}
	return r
}

// TestAttempts feeds what real Envoys report, each case after an interval of
// successes, and asks for requests of that interval.
func TestAttempts(t *testing.T) {
	before := counted{issued: 100, success: 100}
	for _, tc := range []struct {
		name                                string
		before, now                         counted
		demand, landed, success, errs, left float64
	}{
		{"all succeed", before, counted{issued: 100, success: 100}, 100, 100, 100, 0, 0},
		{"all answer 5xx or time out", before, counted{issued: 100, errors: 100}, 100, 100, 0, 100, 0},
		{"all connections are refused", before, counted{errors: 100}, 100, 100, 0, 100, 0},
		{"half of the connections are refused", before, counted{issued: 50, success: 50, errors: 50}, 100, 100, 50, 50, 0},
		{"the zone hangs", before, counted{issued: 100, inProgress: 100}, 100, 100, 0, 0, 0},
		{"the client leaves before headers", before, counted{issued: 100}, 100, 100, 0, 0, 100},
		{"connections are refused and what hung is reset", counted{issued: 100, inProgress: 100}, counted{errors: 150}, 50, 50, 0, 150, 0},
		{"what hung ends", counted{issued: 100, inProgress: 100}, counted{success: 100}, 0, 0, 100, 0, 0},
		{"each try counts", before, counted{issued: 200, success: 100, errors: 100}, 200, 200, 100, 100, 0},
		{"drops for overload", before, counted{issued: 60, success: 60, dropped: 40, categorised: 40}, 100, 60, 60, 0, 0},
		{"a breaker's max_pending_requests overflows", before, counted{issued: 60, success: 60, dropped: 40}, 100, 60, 60, 0, 0},
		{"a breaker's max_requests overflows: the same requests twice", before, counted{issued: 25, success: 25, errors: 75, dropped: 75}, 100, 100, 25, 75, 0},
		{"refused while others are dropped for overload", before, counted{errors: 60, dropped: 40, categorised: 40}, 100, 60, 0, 60, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			c := newClient(1, load.AgentEnvoy)
			tab.Merge([]load.StreamWindow{c.window(report(at(1), tc.before.report()))})
			tab.Merge([]load.StreamWindow{c.window(report(at(2), tc.now.report()))})
			src := tab.Snapshot(at(2)).Service("checkout").Source(zoneA)
			if src == nil {
				src = &load.SourceLoad{}
			}
			got := load.LandedLoad{}
			if len(src.Landed) > 0 {
				got = src.Landed[0]
			}
			seconds := float64(interval) / float64(time.Second)
			near(t, "demand", seconds*src.Raw, tc.demand, 1e-6)
			near(t, "attempts", seconds*got.Issued, tc.landed, 1e-6)
			near(t, "successes", seconds*got.Succeeded, tc.success, 1e-6)
			near(t, "errors", seconds*got.Errors, tc.errs, 1e-6)
			near(t, "abandoned", seconds*got.Abandoned, tc.left, 1e-6)
			near(t, "in progress", got.Waiting, float64(tc.now.inProgress), 1e-6)
		})
	}
}

// invented is a report of entries for one service, each with localities that
// nobody named before.
func invented(serial *int, entries, localities int) load.Report {
	r := load.Report{Arrived: at(5)}
	for range entries {
		s := load.ServiceReport{Service: "checkout", Interval: interval}
		for range localities {
			*serial++
			s.Localities = append(s.Localities, load.LocalityReport{
				Locality: &isobar.Locality{Region: fmt.Sprint("r", 1_000_000-*serial)}, Issued: 1, HasIssued: true,
			})
		}
		r.Services = append(r.Services, s)
	}
	return r
}

// The loop that adds reports serves everybody: no single report may hold it
// up. Unbounded, this one took 44 s.
func TestInventedLocalitiesAreBounded(t *testing.T) {
	tab := table()
	serial := 0
	tab.Merge([]load.StreamWindow{{Stream: 1, Node: load.Node{ID: "a", Locality: zoneA}, Opened: start, Reports: []load.Report{invented(&serial, 100, 1024)}}})
	s := tab.Snapshot(at(5)).Service("checkout")
	if n := len(s.Sites); n != 1024 {
		t.Errorf("%d localities are kept of one stream, want 1024", n)
	}
}

// Nor does a slow collector cost more memory the longer it is slow.
func TestMergedReportsAreBounded(t *testing.T) {
	var w load.StreamWindow
	serial := 0
	for range 20 {
		w.Append(invented(&serial, 1, 500), 1)
	}
	if n := len(w.Reports[0].Services[0].Localities); n != 1024 {
		t.Errorf("%d localities in one entry, want 1024", n)
	}
	for i := range 5 {
		r := load.Report{}
		for j := range 10_000 {
			r.Services = append(r.Services, load.ServiceReport{Service: fmt.Sprint("s", i, "-", j)})
			r.Refused = append(r.Refused, fmt.Sprint("r", i, "-", j))
		}
		w.Append(r, 1)
		w.Append(r, 1)
	}
	if n, m := len(w.Reports[0].Services), len(w.Reports[0].Refused); n != 20_000 || m != 20_000 {
		t.Errorf("%d entries and %d refused services in one report, want 20000 each", n, m)
	}
	if r := w.Reports[0].Refused; !slices.IsSorted(r) || len(slices.Compact(slices.Clone(r))) != len(r) {
		t.Error("what is refused of several reports is not a sorted set")
	}
	many := load.Report{Services: []load.ServiceReport{{Service: "checkout", Localities: []load.LocalityReport{{}}}}}
	l := &many.Services[0].Localities[0]
	w = load.StreamWindow{}
	for i := range 5 {
		l.Details = &load.LocalityDetails{}
		many.Services[0].DroppedBy = nil
		for j := range 16_384 {
			l.Details.Endpoints = append(l.Details.Endpoints, load.EndpointReport{Address: fmt.Sprint(i, "-", j), Issued: 1})
		}
		for j := range 64 {
			many.Services[0].DroppedBy = append(many.Services[0].DroppedBy, load.DropCount{Category: fmt.Sprint(i, "-", j), Count: 1})
		}
		w.Append(many, 1)
	}
	s := &w.Reports[0].Services[0]
	if n, m := len(s.Localities[0].Details.Endpoints), len(s.DroppedBy); n != 65_536 || m != 256 {
		t.Errorf("%d endpoints and %d categories, want 65536 and 256", n, m)
	}
}

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
