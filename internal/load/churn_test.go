package load_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
)

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
