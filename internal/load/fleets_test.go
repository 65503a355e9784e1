//go:build !race

package load_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// crowdOf plays a fleet: the founders have a history, and newcomers come after 40 windows.
// home is the locality of a client, and lands what the client reports of a window.
func crowdOf(founders, newcomers, windows int, home func(i int) isobar.Locality, lands func(k, i int) []load.LocalityReport) (*load.ServiceLoad, load.Deviations) {
	tab, ev := table(), load.NewAdherence(load.Settings{Interval: interval})
	var s *load.ServiceLoad
	var f load.Deviations
	for k := 1; k <= windows; k++ {
		var all []load.StreamWindow
		streams := map[isobar.Locality]int{}
		for i := range founders + newcomers {
			c := newClient(load.StreamID(i+1), load.AgentEnvoy)
			c.node.ID, c.node.Locality = fmt.Sprint("node-", i), home(i)
			if i >= founders {
				if k <= 40 {
					continue
				}
				c.open = moment(40)
			}
			streams[c.node.Locality]++
			w := c.window(report(moment(k), load.ServiceReport{Service: "checkout", Interval: interval, Localities: lands(k, i)}))
			w.Account = fmt.Sprint("address 10.0.0.", i)
			all = append(all, w)
		}
		tab.Merge(all)
		s = tab.Snapshot(moment(k)).Service("checkout")
		var planned []load.PlannedSource
		for _, at := range []isobar.Locality{zoneA, zoneB} {
			if streams[at] > 0 {
				planned = append(planned, load.PlannedSource{Source: at, Acked: start, Streams: streams[at], Shares: []load.PlannedShare{{Locality: at, Share: 1}}})
			}
		}
		f = ev.Observe(moment(k), s, planned)
	}
	return s, f
}

// lands is what a client says of its requests to a locality in a window.
func lands(at isobar.Locality, issued, errors uint64) load.LocalityReport {
	return load.LocalityReport{Locality: &at, Issued: issued, HasIssued: true, Succeeded: issued - errors, Errors: errors}
}

// The requests of one client fail, and those of 20 others in its zone do not: the zone
// stays, also where that client alone has a history.
func TestOneKnownClientDoesNotSpeakForAll(t *testing.T) {
	for _, failing := range []int{0, 10} {
		s, f := crowdOf(5, 20, 76, func(i int) isobar.Locality {
			if i >= 1 && i < 5 {
				return zoneB
			}
			return zoneA
		}, func(k, i int) []load.LocalityReport {
			at, errors := zoneA, uint64(0)
			if i >= 1 && i < 5 {
				at = zoneB
			}
			if k > 70 && i == failing {
				errors = 300
			}
			return []load.LocalityReport{lands(at, 300, errors)}
		})
		if got := s.Observation(zoneA).Failing(); got > 0.06 {
			t.Errorf("client %d fails: %.3f of the requests do, want 1 of 21", failing, got)
		}
		if got := unreachable(f); got != "" {
			t.Errorf("client %d fails: %s is unreachable", failing, got)
		}
	}
}

// A fleet of ten becomes one of a hundred without certificates, and all send a part of
// their requests beyond plan: the unmanaged load is that of all.
func TestUnmanagedLoadIsOfAllClients(t *testing.T) {
	_, f := crowdOf(10, 90, 100, func(int) isobar.Locality { return zoneB }, func(int, int) []load.LocalityReport {
		return []load.LocalityReport{lands(zoneA, 30, 0), lands(zoneB, 70, 0)}
	})
	if len(f.Unmanaged) != 1 || math.Abs(f.Unmanaged[0].Rate-600) > 60 {
		t.Errorf("unmanaged load is %v, want 600 requests/s in %s", f.Unmanaged, zoneA)
	}
}

// A gateway sends much, and the other clients of its source so little that hardly any of
// their requests is ever in progress: these are nothing to compare it with.
func TestQuietClientsJudgeNoGateway(t *testing.T) {
	for _, x := range []struct {
		others         int
		rate, gateway  float64
		latency, least float64 // seconds; part of the demand
	}{
		{2, 0.1, 100, 0.02, 0.8}, {5, 0.1, 100, 0.02, 0.8}, {20, 0.1, 30, 0.02, 0.7}, {20, 0.4, 30, 0.02, 0.7}, {100, 0.1, 30, 0.02, 0.7},
	} {
		r, tab := rand.New(rand.NewPCG(1, 7)), table()
		clients := make([]teller, x.others+1)
		for i := range clients {
			clients[i] = newTeller(i+1, zoneB)
		}
		for k := 1; k <= 1000; k++ {
			for i := range clients {
				rate := x.rate
				if i == x.others {
					rate = x.gateway
				}
				n := poisson(r, rate*interval.Seconds())
				clients[i].near = told{issued: n, succeeded: n, inProgress: poisson(r, rate*x.latency)}
			}
			s := play(tab, clients, k, 1)
			if k < 30 {
				continue
			}
			demand, _ := total(s)
			if len(s.LeftOut) > 0 || s.Misled > 0.2 || demand < x.least*(x.gateway+float64(x.others)*x.rate) {
				t.Fatalf("%d clients of %v/s beside %v/s, window %d: %v are left out, %.2f misled, demand %.1f", x.others, x.rate, x.gateway, k, s.LeftOut, s.Misled, demand)
			}
		}
	}
}

// poisson draws a number of events.
func poisson(r *rand.Rand, mean float64) uint64 {
	if mean > 50 {
		return uint64(max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64())))
	}
	n := uint64(0)
	for x := r.ExpFloat64(); x < mean; x += r.ExpFloat64() {
		n++
	}
	return n
}
