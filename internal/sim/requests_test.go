//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// oneZone is a service in one zone, with single requests that each take about so long, and
// capacity for 100 of them at once. Its clients send 40 requests/s from so far away for a minute after
// ten seconds.
func oneZone(t *testing.T, service time.Duration, latencyMS float64) *sim.Scenario {
	t.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("eu"), To: loc("us"), MS: latencyMS}})
	if err != nil {
		t.Fatal(err)
	}
	l := isobar.ServiceLocality{Locality: loc("us/a"), MaxRate: 100 / service.Seconds(), Concurrency: 100}
	for e := range 4 {
		l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", e+1)})
	}
	topology := &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{{Name: "checkout", Localities: []isobar.ServiceLocality{l}}}}
	topology.Normalize()
	return &sim.Scenario{
		Topology: topology, Tick: interval, Interval: interval, Step: 100 * time.Millisecond, Warmup: 10 * time.Second, Length: 70 * time.Second,
		Requests: true, Serving: []sim.Serving{{Variation: 0.01}},
		Sources: []sim.Source{{Service: "checkout", From: loc("eu/a"), Clients: 2, Demand: sim.Constant(40)}},
	}
}

// TestTimeoutsIncludeTheNetwork: a client waits for its timeout from when it sends to when it has
// the response, so a far client gives up earlier what a near one still waits for.
func TestTimeoutsIncludeTheNetwork(t *testing.T) {
	for _, tt := range []struct {
		latencyMS, failed float64
	}{{10, 0}, {900, 1}, {5000, 1}} {
		sc := oneZone(t, 400*time.Millisecond, tt.latencyMS)
		sc.Timeout = time.Second
		if got := simulate(t, sc, "failover").Failed; math.Abs(got-tt.failed) > 0.001 {
			t.Errorf("%.4f of the requests fail with a latency of %v ms, want %v", got, tt.latencyMS, tt.failed)
		}
	}
}

// TestOutagesEndRequestsInProgress: an endpoint that goes down closes its connections. Its
// clients lose the requests that it works on, beside those that they send while it is down, and
// later it is as empty as at first.
func TestOutagesEndRequestsInProgress(t *testing.T) {
	const service, down = time.Second, 100 * time.Millisecond
	sc := oneZone(t, service, 0)
	sc.Timeout = 10 * time.Second
	sc.Outages = []sim.Outage{{From: 30 * time.Second, To: 30*time.Second + down, Unnoticed: true}}
	r := simulate(t, sc, "failover")
	const lost = 40 * float64(service+down) / float64(time.Second)
	if got := r.Failed * 60 * 40; math.Abs(got-lost) > 0.4*lost {
		t.Errorf("%.0f requests fail, want about %.0f", got, lost)
	}
}
