package load_test

import (
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

const interval = 5 * time.Second

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	zoneA = isobar.MustLocality("us-east/a")
	zoneB = isobar.MustLocality("us-east/b")
	zoneC = isobar.MustLocality("eu-west/c")
)

func at(intervals float64) time.Time {
	return start.Add(time.Duration(intervals * float64(interval)))
}

// client is a stream in the making.
type client struct {
	id   load.StreamID
	node load.Node
	open time.Time
}

func newClient(id load.StreamID, agent load.Agent) client {
	return client{id: id, open: start, node: load.Node{ID: "node", Cluster: "frontend", Locality: zoneA, Agent: agent}}
}

// window makes the stream's window with these reports.
func (c client) window(reports ...load.Report) load.StreamWindow {
	return load.StreamWindow{Stream: c.id, Node: c.node, Opened: c.open, Reports: reports}
}

func (c client) closed(when time.Time) load.StreamWindow {
	w := c.window()
	w.Closed = when
	return w
}

// report tells of one service at a time.
func report(arrived time.Time, services ...load.ServiceReport) load.Report {
	return load.Report{Arrived: arrived, Services: services}
}

// refused reports implausible entries on services.
func refused(arrived time.Time, services ...string) load.Report {
	return load.Report{Arrived: arrived, Refused: services}
}

// byArrival is a report of a client whose windows the server measures.
func byArrival(arrived time.Time, services ...load.ServiceReport) load.Report {
	return load.Report{Arrived: arrived, ByArrival: true, Services: services}
}

func sent(length time.Duration, issued uint64) load.ServiceReport {
	return load.ServiceReport{Service: "checkout", Interval: length, Localities: []load.LocalityReport{
		{Locality: &zoneB, Issued: issued, HasIssued: issued > 0, Succeeded: issued},
	}}
}

func table(saved ...load.Saved) *load.Table {
	return load.NewTable(load.Settings{Interval: interval}, saved, start)
}

func demand(s *load.Snapshot) float64 {
	src := s.Service("checkout").Source(zoneA)
	if src == nil {
		return 0
	}
	return src.Demand
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tolerance {
		t.Errorf("%s = %v, want %v within %v", what, got, want, tolerance)
	}
}

// TestRate feeds one stream's reports and asks for demand at the last arrival.
func TestRate(t *testing.T) {
	old := func(issued, errors uint64, inProgress uint32) load.ServiceReport {
		return load.ServiceReport{Service: "checkout", Localities: []load.LocalityReport{
			{Locality: &zoneB, Succeeded: issued, Errors: errors, InProgress: inProgress},
		}}
	}
	for _, tc := range []struct {
		name    string
		agent   load.Agent
		reports []load.Report
		want    float64
	}{
		{"issued over the report's own interval", load.AgentGRPC, []load.Report{report(at(1), sent(4*time.Second, 400))}, 100},
		{"late arrival changes nothing", load.AgentGRPC, []load.Report{report(at(1), sent(interval, 500)), report(at(2.4), sent(interval, 500))}, 100},
		{"drops are demand", load.AgentGRPC, []load.Report{report(at(1), load.ServiceReport{Service: "checkout", Interval: interval, Dropped: 250})}, 50},
		{"no interval: since the stream opened", load.AgentEnvoy, []load.Report{report(at(2), sent(0, 1000))}, 100},
		{"no interval: between arrivals", load.AgentEnvoy, []load.Report{report(at(1), sent(0, 500)), report(at(3), sent(0, 1000))}, 100},
		{"no interval: what was stuck comes at once", load.AgentEnvoy, []load.Report{
			report(at(1), sent(0, 500)), report(at(4), sent(0, 500)), report(at(4.001), sent(0, 500)), report(at(4.002), sent(0, 500)),
		}, 100},
		{"no interval: what was stuck, by the server's clock", load.AgentEnvoy, []load.Report{
			byArrival(at(1), sent(interval, 500)), byArrival(at(4), sent(3*interval, 500)),
			byArrival(at(4.001), sent(interval/1000, 500)), byArrival(at(4.002), sent(interval/1000, 500)),
		}, 100},
		{"no interval: what was stuck is soon over", load.AgentEnvoy, []load.Report{
			report(at(1), sent(0, 500)), report(at(4), sent(0, 1500)), report(at(4.1), sent(0, 100)), report(at(5), sent(0, 900)),
		}, 200},
		{"no issued: the first window counts what ended", load.AgentEnvoy, []load.Report{report(at(1), old(400, 100, 50))}, 100},
		{"no issued: the gauge's change counts too", load.AgentEnvoy, []load.Report{report(at(1), old(500, 0, 0)), report(at(2), old(400, 0, 100))}, 100},
		{"no issued: nothing negative", load.AgentEnvoy, []load.Report{report(at(1), old(0, 0, 100)), report(at(2), old(10, 0, 0))}, 0},
		{"issued 0 of a client that tells it means none", load.AgentEnvoy, []load.Report{report(at(1), sent(interval, 500)), report(at(1.9), load.ServiceReport{
			Service: "checkout", Interval: 20 * interval, Localities: []load.LocalityReport{{Locality: &zoneB, Succeeded: 5000}},
		})}, 0},
		{"one service twice, with clocks of their own", load.AgentGRPC, []load.Report{report(at(1), sent(interval, 250), sent(2*interval, 500))}, 100},
		{"a tiny first interval is no flood", load.AgentGRPC, []load.Report{report(at(0.01), sent(time.Millisecond, 5))}, 5 / 2.501},
		{"a tiny last interval neither", load.AgentGRPC, []load.Report{report(at(1), sent(interval, 500)), report(at(1.01), sent(50*time.Millisecond, 5))}, 100},
		{"an absurd first interval gives way to the next", load.AgentGRPC, []load.Report{report(at(1), sent(20*time.Hour, 500)), report(at(2), sent(interval, 500))}, 100},
		{"an empty report of gRPC is zero", load.AgentGRPC, []load.Report{report(at(1), sent(interval, 500)), report(at(20))}, 0},
		{"what is refused of gRPC is no silence", load.AgentGRPC, []load.Report{report(at(1), sent(interval, 500)), refused(at(2), "cart", "checkout")}, 100},
		{"what is refused of another service is", load.AgentGRPC, []load.Report{report(at(1), sent(interval, 500)), refused(at(20), "cart", "search")}, 0},
		{"an empty report of Envoy tells nothing", load.AgentEnvoy, []load.Report{report(at(1), sent(interval, 500)), report(at(2))}, 100},
		{"an idle service of Envoy is zero", load.AgentEnvoy, []load.Report{report(at(1), sent(interval, 500)), report(at(20), load.ServiceReport{Service: "checkout", Interval: 19 * interval})}, 0},
		{"arrivals that run backwards", load.AgentEnvoy, []load.Report{report(at(1), sent(interval, 500)), report(at(0.5), sent(interval, 500))}, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			c := newClient(1, tc.agent)
			var last *load.Snapshot
			for _, r := range tc.reports {
				tab.Merge([]load.StreamWindow{c.window(r)})
				last = tab.Snapshot(r.Arrived)
			}
			src := last.Service("checkout").Source(zoneA)
			if src == nil {
				t.Fatal("the source is not in the snapshot")
			}
			near(t, "raw rate", src.Raw, tc.want, 1e-6+0.001*tc.want)
		})
	}
}

func TestAbsurdFirstIntervalLeavesNoTrace(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentGRPC)
	tab.Merge([]load.StreamWindow{c.window(report(at(1), sent(20*time.Hour, 500)))})
	tab.Snapshot(at(1))
	tab.Merge([]load.StreamWindow{c.window(report(at(2), sent(interval, 500)))})
	near(t, "demand", demand(tab.Snapshot(at(2))), 100, 0.1)
}

func TestStepShowsAtOnce(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentGRPC)
	for i := 1; i <= 10; i++ {
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), sent(interval, 500)))})
		tab.Snapshot(at(float64(i)))
	}
	up := []float64{163.2, 186.5, 195.0, 198.2} // 1-1/e of what is left, each
	for i, want := range up {
		now := at(float64(11 + i))
		tab.Merge([]load.StreamWindow{c.window(report(now, sent(interval, 1000)))})
		near(t, "demand after the step up", demand(tab.Snapshot(now)), want, 0.1)
		near(t, "a second look at the same time", demand(tab.Snapshot(now)), want, 0.1)
	}
	now := at(15)
	tab.Merge([]load.StreamWindow{c.window(report(now, sent(interval, 500)))})
	near(t, "demand after the step down", demand(tab.Snapshot(now)), 100+98.2*math.Exp(-1/1.5), 0.1)
}

func TestTickFasterThanReports(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	var got float64
	for i := 1; i <= 100; i++ {
		now := at(float64(i) / 5)
		if i%5 == 0 {
			n := uint64(500)
			if i > 50 {
				n = 1000
			}
			tab.Merge([]load.StreamWindow{c.window(report(now, sent(interval, n)))})
		}
		got = demand(tab.Snapshot(now))
		if i == 55 {
			near(t, "demand one window after the step", got, 163.2, 0.1)
		}
		if i == 57 {
			near(t, "demand between two reports", got, 163.2, 0.1)
		}
	}
	near(t, "demand in the end", got, 200, 0.1)
}

func TestMissingReports(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	for i := 1; i <= 5; i++ {
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), sent(interval, 500)))})
		tab.Snapshot(at(float64(i)))
	}
	for _, tc := range []struct{ at, low, high float64 }{
		{6, 100, 100}, {8, 100, 100}, {10, 30, 95}, {14, 0.1, 15}, {30, 0, 0.01},
	} {
		tab.Merge([]load.StreamWindow{c.window()})
		got := demand(tab.Snapshot(at(tc.at)))
		if got < tc.low-1e-9 || got > tc.high+1e-9 {
			t.Errorf("demand %v intervals after the last report = %v, want %v to %v", tc.at-5, got, tc.low, tc.high)
		}
	}
}

// TestReportsThatArriveLater asserts that a client of another replica, whose reports arrive once an
// interval, does not count as silent for the time that they are on their way; and that one which is
// silent still does.
func TestReportsThatArriveLater(t *testing.T) {
	for _, late := range []float64{0.4, 0.6, 0.95} {
		tab, c := table(), newClient(1, load.AgentGRPC)
		told := func(i int, reports ...load.Report) *load.ServiceLoad {
			w := c.window(reports...)
			w.Delay = interval
			tab.Merge([]load.StreamWindow{w})
			tab.SetSubscribed([]load.Subscription{{Service: "checkout", Source: zoneA}}, at(float64(i)+1+late))
			return tab.Snapshot(at(float64(i) + 1 + late)).Service("checkout")
		}
		for i := 1; i <= 20; i++ {
			s := told(i, report(at(float64(i)), sent(interval, 500)))
			if src := s.Source(zoneA); s.Stale > 0 || src.Nodes != 1 || src.Held != 0 {
				t.Fatalf("reports %v intervals late, after %d: %v of the demand is stale, %d clients report and %d are held", 1+late, i, s.Stale, src.Nodes, src.Held)
			}
		}
		told(21)
		if s := told(22); s.Stale != 1 {
			t.Errorf("reports %v intervals late, then none for %v: %v of the demand is stale", 1+late, 3+late, s.Stale)
		}
	}
}

func TestClosedStreamDecays(t *testing.T) {
	tab := table()
	c, stays := newClient(1, load.AgentGRPC), newClient(2, load.AgentGRPC)
	stays.node.ID = "other"
	for i := 1; i <= 5; i++ {
		now := at(float64(i))
		tab.Merge([]load.StreamWindow{c.window(report(now, sent(interval, 500))), stays.window(report(now, sent(interval, 500)))})
		tab.Snapshot(now)
	}
	tab.Merge([]load.StreamWindow{c.closed(at(5))})
	for i := 6; i <= 12; i++ {
		now := at(float64(i))
		tab.Merge([]load.StreamWindow{stays.window(report(now, sent(interval, 500)))})
		s := tab.Snapshot(now)
		if src := s.Service("checkout").Source(zoneA); math.Abs(src.Raw-100) > 1e-9 || src.Nodes != 1 {
			t.Fatalf("%d intervals after the end: raw %v of %d nodes, want 100 of 1", i-5, src.Raw, src.Nodes)
		}
		if i == 12 {
			near(t, "demand", demand(s), 100, 2)
		}
	}
}

// reporting is a client that has reported 100 requests/s five times.
func reporting() (*load.Table, client) {
	tab, c := table(), newClient(1, load.AgentGRPC)
	for i := 1; i <= 5; i++ {
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), sent(interval, 500)))})
		tab.Snapshot(at(float64(i)))
	}
	return tab, c
}

// successor is the next stream of the client.
func successor(opened float64) client {
	next := newClient(2, load.AgentGRPC)
	next.open = at(opened)
	return next
}

func TestReconnectTakesOver(t *testing.T) {
	tab, c := reporting()
	next := successor(5.4)
	tab.Merge([]load.StreamWindow{c.closed(at(5.2)), next.window()})
	for _, when := range []float64{5.5, 6, 6.3} {
		s := tab.Snapshot(at(when))
		near(t, "demand while it reconnects", demand(s), 100, 1e-6)
		if src := s.Service("checkout").Source(zoneA); src.Held != 1 || src.Nodes != 0 {
			t.Errorf("%d fresh and %d held, want 0 and 1", src.Nodes, src.Held)
		}
	}
	tab.Merge([]load.StreamWindow{next.window(report(at(6.4), sent(6*time.Second, 600)))})
	s := tab.Snapshot(at(6.4))
	near(t, "raw after it is back", s.Service("checkout").Source(zoneA).Raw, 100, 1e-6)
	near(t, "demand after it is back", demand(s), 100, 1e-6)
}

// What a stream said in the same interval in which it ended and another one took
// its place counts once, and is news.
func TestReconnectAfterAReport(t *testing.T) {
	for _, sends := range []uint64{500, 600} {
		tab, c := reporting()
		next, last := successor(6.3), c.closed(at(6.2))
		last.Reports = []load.Report{report(at(6), sent(interval, sends))}
		tab.Merge([]load.StreamWindow{next.window(), last})
		for _, when := range []float64{6.4, 6.9, 7.2} {
			s := tab.Snapshot(at(when))
			src := s.Service("checkout").Source(zoneA)
			near(t, "raw after it came back", src.Raw, float64(sends)/5, 1e-6)
			if src.Held+src.Nodes != 1 {
				t.Errorf("%d fresh and %d held, want one in all", src.Nodes, src.Held)
			}
			if d := demand(s); d < 99.9 || d > float64(sends)/5+0.1 || (sends > 500 && d < 105) {
				t.Errorf("demand %v after %d requests in 5 s", d, sends)
			}
		}
	}
}

// A stream that has reported in the interval in which another one of its name
// opens goes on: it is not silent because that report is not booked yet.
func TestReportBesideANewStream(t *testing.T) {
	tab, c := reporting()
	tab.Snapshot(at(5.9))
	next := successor(6.6)
	tab.Merge([]load.StreamWindow{c.window(report(at(6), sent(interval, 500))), next.window()})
	for _, when := range []float64{6.9, 7.2} {
		near(t, "demand", demand(tab.Snapshot(at(when))), 100, 1e-6)
	}
}

// Node ids are often duplicated: streams count, not names.
func TestSharedNodeIDs(t *testing.T) {
	tab := table()
	a, b := newClient(1, load.AgentGRPC), newClient(2, load.AgentGRPC)
	for i := 1; i <= 5; i++ {
		now := at(float64(i))
		tab.Merge([]load.StreamWindow{b.window(report(now, sent(interval, 500))), a.window(report(now, sent(interval, 500)))})
		tab.Snapshot(now)
	}
	near(t, "demand of two", demand(tab.Snapshot(at(5))), 200, 1e-6)
	tab.Merge([]load.StreamWindow{a.closed(at(5))})
	for i := 6; i <= 20; i++ {
		now := at(float64(i))
		tab.Merge([]load.StreamWindow{b.window(report(now, sent(interval, 500)))})
		tab.Snapshot(now)
	}
	near(t, "demand of the one that is left", demand(tab.Snapshot(at(20))), 100, 0.5)
}

func TestHalfOpenStreamIsReplaced(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	for i := 1; i <= 5; i++ {
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), sent(interval, 500)))})
		tab.Snapshot(at(float64(i)))
	}
	next := newClient(2, load.AgentEnvoy)
	next.open = at(6.8) // nobody told us that the first one is gone
	for i := 8; i <= 12; i++ {
		now := at(float64(i) - 0.2)
		tab.Merge([]load.StreamWindow{c.window(), next.window(report(now, sent(interval, 500)))})
		near(t, "demand", demand(tab.Snapshot(now)), 100, 1e-6)
	}
}

// A longer interval makes everything slower that counts in intervals.
func TestSetInterval(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	tab.Merge([]load.StreamWindow{c.window(report(at(1), sent(interval, 500)))})
	tab.Snapshot(at(1))
	tab.SetInterval(10 * interval)
	near(t, "demand held over what would be 20 missing reports", demand(tab.Snapshot(at(21))), 100, 1e-9)
	tab.SetInterval(0)
	near(t, "demand with the default again", demand(tab.Snapshot(at(60))), 0, 1)
}

func TestForgottenEvidence(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
	w := newWorld(t, a)
	w.fate = dead(zoneB, failed)
	w.expect("dead", w.run(2), "us-east/a>us-east/b", "us-east/b")
	w.evidence.Forget("checkout")
	w.expect("forgotten", w.run(1), "", "")
	w.expect("found again", w.run(1), "us-east/a>us-east/b", "us-east/b")
	w.evidence.SetInterval(time.Minute)
	w.expect("not forgotten by another interval", w.run(1), "us-east/a>us-east/b", "us-east/b")
}

// Reports that become one keep every service and locality of both.
func TestMergedReportsKeepAllParts(t *testing.T) {
	part := func(service string, l int, issued uint64, inProgress uint32) load.ServiceReport {
		return load.ServiceReport{Service: service, Interval: interval, Localities: []load.LocalityReport{{
			Locality: &[]isobar.Locality{zoneA, zoneB}[l], Issued: issued, HasIssued: true, InProgress: inProgress,
			Details: &load.LocalityDetails{Endpoints: []load.EndpointReport{{Address: []string{"10.0.0.1:1", "10.0.0.2:1"}[l], Issued: issued}}},
		}}}
	}
	w := newClient(1, load.AgentGRPC).window(report(at(1), part("a", 0, 100, 7), part("b", 0, 10, 0)))
	w.Append(report(at(2), part("c", 0, 30, 0), part("a", 1, 50, 5), part("a", 0, 1, 0)), 1)
	r := w.Reports[0]
	if len(w.Reports) != 1 || !r.Arrived.Equal(at(2)) || len(r.Services) != 4 {
		t.Fatalf("%d reports, the first of %d services", len(w.Reports), len(r.Services))
	}
	a := r.Services[0]
	if a.Service != "a" || a.Interval != 2*interval || len(a.Localities) != 2 {
		t.Fatalf("merged %+v", a)
	}
	if a.Localities[0].Issued != 100 || a.Localities[0].InProgress != 0 || a.Localities[1].Issued != 50 || a.Localities[1].InProgress != 5 {
		t.Errorf("localities %+v", a.Localities)
	}
	tab := table()
	tab.Merge([]load.StreamWindow{w})
	s := tab.Snapshot(at(2))
	near(t, "a, whose entries add up", s.Service("a").Source(zoneA).Raw, 15+0.2, 1e-9)
	near(t, "b", s.Service("b").Source(zoneA).Raw, 2, 1e-9)
	near(t, "c", s.Service("c").Source(zoneA).Raw, 6, 1e-9)
}

// TestNewestReport: the newest report of a source stays known while its streams are held.
func TestNewestReport(t *testing.T) {
	tab := table()
	a, b := newClient(1, load.AgentGRPC), newClient(2, load.AgentGRPC)
	b.node.ID, b.open = "other", at(0.5)
	tab.Merge([]load.StreamWindow{a.window(report(at(1), sent(interval, 500))), b.window(report(at(1.5), sent(interval, 500)))})
	for _, now := range []time.Time{at(2), at(5)} {
		src := tab.Snapshot(now).Service("checkout").Source(zoneA)
		if src == nil || !src.Newest.Equal(at(1.5)) {
			t.Fatalf("at %s: %+v, want the report of %s", now, src, at(1.5))
		}
		if held := now.After(at(2)); held != (src.Held == 2) || held != (src.Nodes == 0) {
			t.Errorf("at %s: %d streams are held, %d fresh", now, src.Held, src.Nodes)
		}
	}
}
