package load_test

import (
	"testing"

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
