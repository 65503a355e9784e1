package load_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/load"
)

// One client of ten goes quiet while its stream stays open: what it last told
// counts in full for three intervals, neither less nor more, and then fades.
func TestOneMissingClientIsHeld(t *testing.T) {
	tab := table()
	var fleet []client
	for i := range 10 {
		fleet = append(fleet, newClient(load.StreamID(i+1), load.AgentEnvoy))
	}
	for k := 1; k <= 20; k++ {
		var windows []load.StreamWindow
		for i, c := range fleet {
			if i == 0 && k > 5 {
				windows = append(windows, c.window())
				continue
			}
			windows = append(windows, c.window(report(at(float64(k)), sent(interval, 500))))
		}
		tab.Merge(windows)
		raw := tab.Snapshot(at(float64(k))).Service("checkout").Source(zoneA).Raw
		switch {
		case k <= 8:
			near(t, "what ten clients send while one is missed", raw, 1000, 1e-6)
		case k == 20:
			near(t, "what is left without it", raw, 900, 1)
		}
	}
}

// A node id says who it is only together with the zone: a client in another
// zone takes nothing over, and what it sends counts where it is.
func TestNobodyInheritsFromAnotherZone(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	for i := 1; i <= 5; i++ {
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), sent(interval, 500)))})
		tab.Snapshot(at(float64(i)))
	}
	other := newClient(2, load.AgentEnvoy)
	other.node.Locality, other.open = zoneB, at(5.4)
	tab.Merge([]load.StreamWindow{c.closed(at(5.2)), other.window()})
	tab.Snapshot(at(5.5))
	for i := 6; i <= 12; i++ {
		tab.Merge([]load.StreamWindow{other.window(report(at(float64(i)+0.4), sent(interval, 1000)))})
		tab.Snapshot(at(float64(i) + 0.4))
	}
	s := tab.Snapshot(at(12.4))
	near(t, "demand of the zone that is left", demand(s), 0, 5)
	near(t, "demand of the other zone", s.Service("checkout").Source(zoneB).Demand, 200, 1e-6)
}
