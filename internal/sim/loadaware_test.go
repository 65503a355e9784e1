//go:build !race

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// TestFullEndpointsReportLessThanAll: an endpoint that is full reports the work that it has
// begun before it begins with the next request. So what a full locality tells is a little
// below all that it can do, and load_aware_locality leaves it a part of the requests. That
// part is large where each request is a large part of the time over which endpoints measure.
func TestFullEndpointsReportLessThanAll(t *testing.T) {
	s := isobar.Service{Name: "checkout"}
	sc := &sim.Scenario{
		Tick: interval, Interval: interval, Step: 100 * time.Millisecond, Warmup: 30 * time.Second, Length: 330 * time.Second,
		Requests: true, Timeout: 5 * time.Second, Serving: []sim.Serving{{Variation: 0.01, Waiting: 2}},
	}
	for i, zone := range []string{"us/a", "us/b"} {
		l := isobar.ServiceLocality{Locality: loc(zone), MaxRate: 4, Concurrency: 4}
		for e := range 4 { // one worker each, and one second for a request
			l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, e+1)})
		}
		s.Localities = append(s.Localities, l)
		sc.Sources = append(sc.Sources, sim.Source{Service: s.Name, From: l.Locality, Clients: 1, Demand: sim.Constant(12)})
	}
	sc.Topology = &isobar.Topology{Revision: 1, Services: []isobar.Service{s}}
	sc.Topology.Normalize()
	// Both localities are full three times over, and refuse what would wait for long. Their proxies hear of 0.58 (work of a second,
	// decayed over a second: 1/(e-1)), which is alike, so they stay at home but for the probe.
	// With the next request counted in, both would have nothing left, and share out all.
	if got := simulate(t, sc, "load-aware").CrossZone; got < 0.02 || got > 0.1 {
		t.Errorf("%.3f of the requests leave their zone, want the probe of 0.03", got)
	}
}

// Envoys that weigh localities by themselves go by the localities that Isobar lists, and not by their
// shares: a zone that it leaves out because others take its requests anyway would get these.
func TestLoadAwareClientsKeepTheirLocalities(t *testing.T) {
	t.Parallel()
	sc := hotZone(t)
	for seed := range uint64(3) {
		sc.Seed = seed + 1
		alone, above := simulate(t, sc, "load-aware"), simulate(t, sc, "isobar+load-aware")
		if above.MeanMS > alone.MeanMS || above.Failed > 0 || above.Peak > 0.9 {
			t.Errorf("seed %d: mean %.1f ms, %.2f%% fail, the fullest zone is at %.0f%%; without Isobar %.1f ms", sc.Seed, above.MeanMS, 100*above.Failed, 100*above.Peak, alone.MeanMS)
		}
	}
}
