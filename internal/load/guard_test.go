package load_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/load"
)

// nodesReport lets the nodes of a source report one interval each and gives
// the demand that is seen.
func nodesReport(tab *load.Table, nodes, k int, issued func(node int) uint64) float64 {
	w := make([]load.StreamWindow, nodes)
	for n := range w {
		w[n] = newClient(load.StreamID(n+1), load.AgentEnvoy).window(report(at(float64(k)), sent(interval, issued(n))))
	}
	tab.Merge(w)
	return demand(tab.Snapshot(at(float64(k))))
}

func each(issued uint64) func(int) uint64 { return func(int) uint64 { return issued } }

// The guard goes by what a node sends when it sends something: a service
// without declared capacity that was idle, or nearly so, is believed when its
// traffic comes.
func TestGuardBelievesTrafficAfterQuiet(t *testing.T) {
	for _, tc := range []struct {
		name         string
		nodes        int
		before, rest int // intervals with traffic, and without
		quiet        uint64
	}{
		{"20 nodes, idle from the start", 20, 0, 5, 0},
		{"40 nodes, idle from the start", 40, 0, 5, 0},
		{"next to nothing from the start", 30, 0, 5, 1},
		{"an hour of quiet", 30, 100, 720, 0},
		{"three hours of quiet", 30, 100, 2160, 0},
		{"three hours of next to nothing", 30, 100, 2160, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			k := 0
			for range tc.before {
				k++
				nodesReport(tab, tc.nodes, k, each(500))
			}
			for range tc.rest {
				k++
				nodesReport(tab, tc.nodes, k, each(tc.quiet))
			}
			got := 0.0
			for range 5 {
				k++
				got = nodesReport(tab, tc.nodes, k, each(500))
			}
			if want := 100 * float64(tc.nodes); got < 0.9*want {
				t.Errorf("demand %.1f after five intervals of %.0f requests/s", got, want)
			}
		})
	}
}

// Nodes of very different size come back together: those above the usual are
// believed within a minute.
func TestGuardBelievesUnequalNodes(t *testing.T) {
	tab := table()
	size := func(n int) uint64 { return 100 * uint64(1+n%8) }
	for k := range 100 {
		nodesReport(tab, 32, k+1, each(1))
	}
	got := 0.0
	for k := range 12 {
		got = nodesReport(tab, 32, 101+k, size)
	}
	if want := 32 * 90.0; got < 0.9*want {
		t.Errorf("demand %.1f after a minute of %.0f requests/s", got, want)
	}
}

// A few that lie about their traffic are bounded, however quiet they were.
func TestGuardHoldsAfterQuiet(t *testing.T) {
	tab := table()
	for k := range 10 {
		nodesReport(tab, 30, k+1, each(50))
	}
	for k := range 50 {
		nodesReport(tab, 30, k+11, func(n int) uint64 {
			if n < 3 {
				return 0
			}
			return 50
		})
	}
	got := nodesReport(tab, 30, 61, func(n int) uint64 {
		if n < 3 {
			return 5_000_000
		}
		return 50
	})
	if got > 270+3*100+1 {
		t.Errorf("demand %.1f: three nodes count for more than ten times their own mean of 10 each", got)
	}
}
