//go:build !race

package load_test

import (
	"fmt"
	"testing"
	"time"

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

// comers is a population of constant size whose clients live for a while and
// are replaced by others.
type comers struct {
	tab  *load.Table
	k    int // intervals so far
	next load.StreamID
	live []client
}

// turn lets one interval pass in which each client that was there reports.
func (c *comers) turn(size, life int, issued uint64) *load.ServiceLoad {
	c.k++
	now := at(float64(c.k))
	var w []load.StreamWindow
	var stay []client
	for _, x := range c.live {
		if now.Sub(x.open) >= time.Duration(life)*interval {
			w = append(w, x.closed(now.Add(-time.Second)))
			continue
		}
		stay = append(stay, x)
		w = append(w, x.window(report(now, sent(interval, issued))))
	}
	c.live = stay
	for born := 0; len(c.live) < size && (c.k > life || born < (size+life-1)/life); born++ {
		c.next++
		x := newClient(c.next, load.AgentEnvoy)
		x.node.ID, x.open = fmt.Sprint(c.next), now.Add(-time.Second)
		c.live = append(c.live, x)
		w = append(w, x.window())
	}
	c.tab.Merge(w)
	return c.tab.Snapshot(now).Service("checkout")
}

// Clients that come and go all the time are no reconnect of many: when demand
// falls it is believed after a moment, whatever share of the clients is always
// just missing.
func TestChurnDoesNotHoldForEver(t *testing.T) {
	for _, life := range []int{4, 6, 10, 15, 20, 40} {
		t.Run(fmt.Sprintf("clients live %d intervals", life), func(t *testing.T) {
			c := &comers{tab: table()}
			for range 100 {
				c.turn(120, life, 50)
			}
			held, row := 0, 0
			var s *load.ServiceLoad
			for k := range 100 {
				s = c.turn(120, life, 25)
				if s.Covered {
					row = 0
					continue
				}
				if row++; row > 3 {
					t.Fatalf("held for more than three intervals in a row, %d after the demand fell", k+1)
				}
				held++
			}
			if held > 6 {
				t.Errorf("held %d of 100 intervals", held)
			}
			// A client's first window begins in the middle of an interval.
			if got := s.Source(zoneA).Demand; got > 660 || got < 400 {
				t.Errorf("demand %.0f, coverage %.2f; want about 600", got, s.Coverage)
			}
		})
	}
}

// The wait for a fleet that reports no load after a restart ends: its saved
// demand stands for two minutes, then fades.
func TestSavedDemandFadesWithoutAnyStream(t *testing.T) {
	tab := table(load.Saved{Service: "checkout", Source: zoneA, Rate: 100}, load.Saved{Service: "checkout", Source: zoneB, Rate: 50})
	for k := 1; k <= 24; k++ {
		s := tab.Snapshot(at(float64(k))).Service("checkout")
		if s.Covered || s.Source(zoneA).Demand != 100 {
			t.Fatalf("after %d intervals: covered = %v, demand %v; want the saved demand held", k, s.Covered, s.Source(zoneA).Demand)
		}
	}
	before := 100.0
	for k := 25; k <= 27; k++ {
		s := tab.Snapshot(at(float64(k))).Service("checkout")
		if got := s.Source(zoneA).Demand; !s.Covered || got >= before || got < before/4 {
			t.Fatalf("after %d intervals: covered = %v, demand %v after %v; want it to fade", k, s.Covered, got, before)
		}
		before = s.Source(zoneA).Demand
	}
	// Who comes back meanwhile is still waited for, as far as is remembered.
	back := newClient(1, load.AgentGRPC)
	back.open = at(27.5)
	tab.Merge([]load.StreamWindow{back.window()})
	if s := tab.Snapshot(at(28)).Service("checkout"); s.Covered {
		t.Error("a stream stands again, and what is left of the saved demand is not waited for")
	}
	for k := 29; k <= 34; k++ {
		tab.Merge([]load.StreamWindow{back.window()})
		tab.Snapshot(at(float64(k)))
	}
	if s := tab.Snapshot(at(40)).Service("checkout"); s != nil && !s.Covered {
		t.Error("still waiting")
	}
}
