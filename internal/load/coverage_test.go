package load_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// TestCoverageAfterRestart brings clients of 1,000 requests/s in 10 zones back,
// a tenth at a time.
func TestCoverageAfterRestart(t *testing.T) {
	var saved []load.Saved
	zone := func(i int) isobar.Locality { return isobar.Locality{Region: "r", Zone: fmt.Sprint(i)} }
	for i := range 10 {
		saved = append(saved, load.Saved{Service: "checkout", Source: zone(i), Rate: 100})
	}
	for _, tc := range []struct {
		name      string
		back      int     // zones that are back
		at        float64 // intervals since the first stream
		coverage  float64
		covered   bool
		demand    float64 // in total
		remembers bool    // that of the last zone
	}{
		{"nobody yet", 0, 1, 0, false, 1000, true},
		{"nobody in two minutes", 0, 24, 0, false, 1000, true},
		{"half", 5, 1, 0.5, false, 1000, true},
		{"enough", 8, 1, 0.8, true, 1000, true},
		{"all", 10, 1, 1, true, 1000, false},
		{"half when the time is over", 5, 3, 1, true, 500, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table(saved...)
			var windows []load.StreamWindow
			for i := range tc.back {
				c := newClient(load.StreamID(i+1), load.AgentGRPC)
				c.node.Locality = zone(i)
				windows = append(windows, c.window(report(at(tc.at), sent(interval, 500))))
			}
			tab.Merge(windows)
			s := tab.Snapshot(at(tc.at)).Service("checkout")
			near(t, "coverage", s.Coverage, tc.coverage, 1e-9)
			if s.Covered != tc.covered {
				t.Errorf("covered = %v, want %v", s.Covered, tc.covered)
			}
			total := 0.0
			for i := range s.Sources {
				total += s.Sources[i].Demand
			}
			near(t, "demand", total, tc.demand, 1e-6)
			last := s.Source(zone(9))
			if remembers := last != nil && last.Saved > 0; remembers != tc.remembers {
				t.Errorf("remembers the last zone: %v, want %v", remembers, tc.remembers)
			}
		})
	}
}

func TestSeenBeatsSaved(t *testing.T) {
	tab := table(load.Saved{Service: "checkout", Source: zoneA, Rate: 100}, load.Saved{Service: "checkout", Source: zoneB, Rate: 900})
	c := newClient(1, load.AgentGRPC)
	tab.Merge([]load.StreamWindow{c.window(report(at(1), sent(interval, 1500)))})
	s := tab.Snapshot(at(1)).Service("checkout")
	near(t, "demand of the source that grew", s.Source(zoneA).Demand, 300, 1e-6)
	near(t, "demand of the source that is away", s.Source(zoneB).Demand, 900, 1e-6)
	near(t, "coverage", s.Coverage, 0.1, 1e-9)
}

func TestStreamsWithoutReportsYetAreWaitedFor(t *testing.T) {
	tab := table(load.Saved{Service: "checkout", Source: zoneA, Rate: 100})
	c := newClient(1, load.AgentGRPC)
	tab.Merge([]load.StreamWindow{c.window()})
	for _, tc := range []struct {
		at      float64
		covered bool
	}{{4, false}, {5.9, false}, {6, true}} {
		if s := tab.Snapshot(at(tc.at)).Service("checkout"); s != nil && s.Covered != tc.covered {
			t.Errorf("after %v intervals covered = %v, want %v", tc.at, s.Covered, tc.covered)
		}
	}
}

// TestReconnectHerd loses most streams of a running process at once.
func TestReconnectHerd(t *testing.T) {
	tab := table()
	clients := make([]client, 10)
	for i := range clients {
		clients[i] = newClient(load.StreamID(i+1), load.AgentGRPC)
		clients[i].node.ID = fmt.Sprint(i)
	}
	for i := 1; i <= 5; i++ {
		var w []load.StreamWindow
		for _, c := range clients {
			w = append(w, c.window(report(at(float64(i)), sent(interval, 500))))
		}
		tab.Merge(w)
		tab.Snapshot(at(float64(i)))
	}
	var w []load.StreamWindow
	for _, c := range clients[:6] {
		w = append(w, c.closed(at(5.5)))
	}
	tab.Merge(w)
	for _, when := range []float64{6, 7, 8} {
		var w []load.StreamWindow
		for _, c := range clients[6:] {
			w = append(w, c.window(report(at(when), sent(interval, 500))))
		}
		tab.Merge(w)
		s := tab.Snapshot(at(when)).Service("checkout")
		near(t, "coverage", s.Coverage, 0.4, 1e-6)
		near(t, "demand", s.Source(zoneA).Demand, 1000, 1e-6)
		if s.Covered || s.Source(zoneA).Saved == 0 {
			t.Errorf("at %v: covered = %v, remembered %v", when, s.Covered, s.Source(zoneA).Saved)
		}
	}
	for _, when := range []float64{9, 10, 11, 12, 13, 14, 15} {
		var w []load.StreamWindow
		for _, c := range clients[6:] {
			w = append(w, c.window(report(at(when), sent(interval, 500))))
		}
		tab.Merge(w)
		tab.Snapshot(at(when))
	}
	s := tab.Snapshot(at(15)).Service("checkout")
	if !s.Covered {
		t.Error("still waiting for clients that are gone")
	}
	near(t, "demand of those that stayed", s.Source(zoneA).Demand, 400, 20)
}

func TestSavedRoundTrip(t *testing.T) {
	tab := table()
	c, d := newClient(1, load.AgentGRPC), newClient(2, load.AgentGRPC)
	d.node.Locality = zoneC
	tab.Merge([]load.StreamWindow{c.window(report(at(1), sent(interval, 500))), d.window(report(at(1), sent(interval, 100)))})
	saved := tab.Snapshot(at(1)).Saved()
	want := []load.Saved{{Service: "checkout", Source: zoneC, Rate: 20}, {Service: "checkout", Source: zoneA, Rate: 100}}
	if fmt.Sprint(saved) != fmt.Sprint(want) {
		t.Fatalf("saved %v, want %v", saved, want)
	}
	again := load.NewTable(load.Settings{Interval: interval}, saved, at(2)).Snapshot(at(2)).Service("checkout")
	near(t, "demand of the next process", again.Source(zoneA).Demand, 100, 1e-9)
}
