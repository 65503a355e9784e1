//go:build !race

package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// toll is a service that loses its endpoints one after the other, or whose checkers say so. Its
// clients report every 4 s.
type toll struct {
	*world

	per    int // endpoints in each zone
	zones  []isobar.Locality
	begun  time.Time
	at     func(n int) time.Duration // when the endpoint with this number goes
	across bool                      // one zone after the other has a turn, not all of a zone first
	forged bool
}

func (x *toll) dead(address string) bool {
	var zone, i int
	_, _ = fmt.Sscanf(address, "10.%d.0.%d:80", &zone, &i)
	n := zone*x.per + i
	if x.across {
		n = i*len(x.zones) + zone
	}
	return x.at(n) <= x.now.Sub(x.begun)
}

// heard is what clients say of the zones that they send requests to: they fail at endpoints that
// are dead and not down.
func (x *toll) heard() *health.ClientReports {
	sent, failed := map[isobar.Locality]int{}, map[isobar.Locality]int{}
	for _, v := range x.table.Explain("web") {
		if v.Status == isobar.Unhealthy {
			continue
		}
		sent[v.Locality]++
		if !x.forged && x.dead(v.Address) {
			failed[v.Locality]++
		}
	}
	out := &health.ClientReports{}
	for _, at := range x.zones {
		switch {
		case sent[at] == 0:
		case 10*failed[at] <= sent[at]:
			out.Served = append(out.Served, health.Served{Service: "web", Locality: at})
		default:
			out.Failed = append(out.Failed, health.Served{Service: "web", Locality: at})
		}
	}
	return out
}

// play lets all endpoints go. It returns how many were down at most, and for how long at most a dead
// endpoint was not down.
func (x *toll) play() (most int, late time.Duration) {
	var told, since time.Time
	for total := x.per * len(x.zones); x.now.Sub(x.begun) < x.at(total-1)+time.Minute; {
		x.clients = nil
		if x.now.Sub(told) >= 4*time.Second {
			x.clients, told = x.heard(), x.now
		}
		x.step()
		missed := false
		for _, v := range x.table.Explain("web") {
			missed = missed || v.Status != isobar.Unhealthy && x.dead(v.Address)
		}
		if !missed {
			since = time.Time{}
		} else if since.IsZero() {
			since = x.now
		}
		if missed {
			late = max(late, x.now.Sub(since))
		}
		most = max(most, x.count("web", isobar.Unhealthy))
	}
	return most, late
}

// TestPacesOfMassFailures asserts that checkers which lie take at most half of a service whose
// requests succeed at any pace, 2 of 3 endpoints, and all of one or two, of which clients try all
// then; and that endpoints which die at the same pace are down within a few seconds.
func TestPacesOfMassFailures(t *testing.T) {
	every := func(d time.Duration) func(int) time.Duration {
		return func(n int) time.Duration { return time.Duration(n) * d }
	}
	burst := func(size int, d time.Duration) func(int) time.Duration {
		return func(n int) time.Duration { return time.Duration(n/size) * d }
	}
	paces := map[string]func(int) time.Duration{
		"at once": every(0), "one each 10 s": every(10 * time.Second), "one each 30 s": every(30 * time.Second), "one each 60 s": every(time.Minute),
		"one each 310 s": every(310 * time.Second), "two each 70 s": burst(2, 70*time.Second), "three each 50 s": burst(3, 50*time.Second),
		"three each 4 min": burst(3, 4*time.Minute),
	}
	most := map[int]int{1: 1, 2: 2, 3: 2, 4: 2, 12: 6} // endpoints down, by those that there are
	for _, size := range []struct{ per, zones int }{{1, 1}, {1, 2}, {1, 3}, {3, 1}, {2, 2}, {4, 3}} {
		for name, at := range paces {
			for _, across := range []bool{false, true} {
				for _, forged := range []bool{true, false} {
					zones := []isobar.Locality{zoneA, zoneB, zoneC}
					w := newWorld(t, topology(service("api", 12, zoneF), service("web", size.per, zones[:size.zones]...)), checkersIn(2, zones...))
					w.run(10 * time.Second)
					w.settled = true
					x := &toll{world: w, per: size.per, zones: zones[:size.zones], begun: w.now, at: at, across: across, forged: forged}
					w.says = downWhere(func(k health.Key) bool { return k.Service == "web" && x.dead(k.Address) })
					down, late := x.play()
					total := size.per * size.zones
					if forged && down > most[total] {
						t.Errorf("%s, across zones %v: liars took %d of %d endpoints, want at most %d", name, across, down, total, most[total])
					}
					if !forged && (down != total || late > 4*interval) {
						t.Errorf("%s, across zones %v: %d of %d dead endpoints are down, up to %v late", name, across, down, total, late)
					}
				}
			}
		}
	}
}
