package load_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/load"
)

// nodesReport lets the nodes of a source report one interval each and returns
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

// The guard uses what a node sends when it sends something: a service
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

// A client whose counters broke stays broken: it counts for a twentieth of the
// service, or for its own mean that grows by 1% a window, whenever it began.
func TestGuardHoldsWhileTheLieLasts(t *testing.T) {
	const nodes, each, lie = 40, 100, 500_000 // requests in an interval
	for _, tc := range []struct {
		name     string
		from     int // interval
		capacity float64
	}{
		{"later", 20, 4000},
		{"later, without a capacity", 20, 0},
		{"from the first window", 0, 4000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			got := 0.0
			for k := range 200 {
				got = nodesReport(tab, nodes, k+1, func(n int) uint64 {
					if n == 3 && k >= tc.from {
						return lie
					}
					return each
				})
				tab.SetCapacity("checkout", tc.capacity)
			}
			others := float64((nodes - 1) * each / 5)
			limit := max(0.05*tc.capacity, 0.06*others, 2*7.4*each/5) // 1.01 to the power of 200 is 7.3
			if got < others || got > others+limit {
				t.Errorf("demand %.0f: a liar counts for %.0f beside honest %.0f", got, got-others, others)
			}
		})
	}
}

// A fleet may be one gateway and many that hardly send anything: the gateway is
// believed, from the first window and in overload.
func TestGuardBelievesAGateway(t *testing.T) {
	for _, capacity := range []float64{0, 1200, 4000} {
		tab := table()
		got := 0.0
		for k := range 10 {
			got = nodesReport(tab, 30, k+1, func(n int) uint64 {
				if n == 0 {
					return 10_000
				}
				return 5
			})
			tab.SetCapacity("checkout", capacity)
		}
		if got < 2000 {
			t.Errorf("capacity %.0f: demand %.0f of a gateway that sends 2000 requests/s", capacity, got)
		}
	}
}

// Who alone grows far beyond its past, and stays there, is believed in the end.
func TestGuardBelievesPersistence(t *testing.T) {
	tab := table()
	tab.SetCapacity("checkout", 2000)
	got := 0.0
	for k := range 400 {
		got = nodesReport(tab, 30, k+1, func(n int) uint64 {
			if n == 0 && k >= 10 {
				return 1500
			}
			return 50
		})
	}
	if want := 29*10.0 + 300; got < 0.99*want {
		t.Errorf("demand %.0f after half an hour, want %.0f", got, want)
	}
}
