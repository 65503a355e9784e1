package load_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// TestFutile counts the requests since one succeeded, a few in each report.
func TestFutile(t *testing.T) {
	fails := func(n uint64) counted { return counted{issued: n, errors: n} }
	repeat := func(n int, c counted) (out []counted) {
		for range n {
			out = append(out, c)
		}
		return out
	}
	for _, tc := range []struct {
		name             string
		reports          []counted
		attempts, failed float64
		tolerance        float64
	}{
		{"all succeed", repeat(4, counted{issued: 2, success: 2}), 0, 0, 0},
		{"one request in each report", repeat(6, fails(1)), 5.4, 5.4, 0.2},
		{"three", repeat(4, fails(3)), 11.3, 11.3, 0.3},
		{"one in three reports", append(append(repeat(1, fails(2)), repeat(2, counted{})...), fails(2)), 3.8, 3.8, 0.2},
		{"a success in between", []counted{fails(3), {issued: 3, success: 1, errors: 2}, fails(1), fails(1)}, 2, 2, 0.1},
		{"a success at the end", append(repeat(6, fails(3)), counted{issued: 1, success: 1}), 0, 0, 0},
		{"on their way", []counted{{issued: 3, inProgress: 3}, {issued: 3, inProgress: 6}}, 6, 0, 0.2},
		{"the client leaves before headers", append([]counted{{issued: 1, success: 1}}, repeat(3, counted{issued: 2})...), 5.8, 5.8, 0.2},
		{"a proxy of TCP never reports a success", repeat(6, counted{issued: 5}), 25, 0, 1},
		{"many are remembered as 25", repeat(20, fails(500)), 25, 25, 0.1},
		{"long ago", append(repeat(6, fails(500)), repeat(60, counted{})...), 2, 2, 0.3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			c := newClient(1, load.AgentEnvoy)
			var last *load.ServiceLoad
			for i, r := range tc.reports {
				now := at(float64(i + 1))
				tab.Merge([]load.StreamWindow{c.window(report(now, r.report()))})
				last = tab.Snapshot(now).Service("checkout")
			}
			source, site := last.Source(zoneA).Futile, load.Futile{}
			if len(last.Futile) > 0 {
				site = last.Futile[0].Futile
			}
			near(t, "attempts of the source", source.Attempts, tc.attempts, tc.tolerance)
			near(t, "failed of the source", source.Failed, tc.failed, tc.tolerance)
			near(t, "failed of the locality", site.Failed, tc.failed, tc.tolerance)
			if again := tab.Snapshot(at(float64(len(tc.reports)))).Service("checkout").Source(zoneA).Futile; again != source {
				t.Errorf("another snapshot at the same time counts %v, the first %v", again, source)
			}
		})
	}
}

// TestInventedLocalitiesHideNoFailures asserts that what fails in a locality of the service is remembered beside
// localities that clients invent for each report, and in which more fails.
func TestInventedLocalitiesHideNoFailures(t *testing.T) {
	tab, honest, other := table(), newClient(1, load.AgentEnvoy), newClient(2, load.AgentEnvoy)
	tab.SetTopology(realTopology())
	for k := range 8 {
		now := at(float64(k + 1))
		tab.Merge([]load.StreamWindow{
			honest.window(report(now, load.ServiceReport{Service: "checkout", Interval: interval, Localities: []load.LocalityReport{
				{Locality: &zoneC, Issued: 1, HasIssued: true, Errors: 1}, {Locality: &zoneB, Issued: 50, HasIssued: true, Succeeded: 50},
			}})),
			other.window(report(now, inZones("checkout", fmt.Sprint("invented-", k, "-"), 900, func(l *load.LocalityReport, _ int) {
				l.Issued, l.Succeeded, l.Errors = 50, 0, 50
			}))),
		})
		s := tab.Snapshot(now).Service("checkout")
		i := slices.IndexFunc(s.Futile, func(f load.SiteFutile) bool { return f.Locality == zoneC })
		if i < 0 || s.Futile[i].Failed < 0.8*float64(k+1) {
			t.Fatalf("report %d: %d localities in which requests fail are remembered, of the service's at %d", k+1, len(s.Futile), i)
		}
		if len(s.Futile) > 2*902+16+3 {
			t.Errorf("report %d: %d localities are remembered", k+1, len(s.Futile))
		}
	}
}

// TestFailuresInInventedLocalitiesCostLittle asserts that a snapshot takes about as long where clients invent localities in
// half of which their requests fail as where none does.
func TestFailuresInInventedLocalitiesCostLittle(t *testing.T) {
	const sources, clients, each = 10, 4, 1000
	took := func(failing bool) time.Duration {
		tab, shortest := table(), time.Hour
		for k := range 3 {
			now := at(float64(k + 1))
			var windows []load.StreamWindow
			for i := range sources * clients {
				c := newClient(load.StreamID(i+1), load.AgentEnvoy)
				c.node.Locality = isobar.Locality{Region: "us", Zone: fmt.Sprint(i % sources)}
				windows = append(windows, c.window(report(now, inZones("checkout", fmt.Sprint("invented-", i, "-"), each, func(l *load.LocalityReport, j int) {
					if failing && j%2 == 0 {
						l.Succeeded, l.Errors = 0, l.Issued
					}
				}))))
			}
			tab.Merge(windows)
			began := time.Now()
			tab.Snapshot(now)
			shortest = min(shortest, time.Since(began))
		}
		return shortest
	}
	if none, half := took(false), took(true); half > 6*none {
		t.Errorf("a snapshot takes %v, and %v where half of the requests fail", none, half)
	}
}
