//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// Instances of a service that calls another report as this service, so that
// what they send is planned as its calls and not a second time as measured.
func TestCallsCountOnce(t *testing.T) {
	site := func(at string, rate float64) isobar.ServiceLocality {
		return isobar.ServiceLocality{
			Locality: isobar.MustLocality(at), MaxRate: rate, Concurrency: rate / 100,
			Endpoints: []isobar.Endpoint{{Address: at + "-1:80"}, {Address: at + "-2:80"}},
		}
	}
	services := []isobar.Service{
		{Name: "backend", Localities: []isobar.ServiceLocality{site("us/a", 3000), site("eu/a", 3000)}},
		{Name: "frontend", Localities: []isobar.ServiceLocality{site("us/a", 1000), site("eu/a", 1000)}, Calls: []isobar.Call{{Service: "backend", PerRequest: 2}}},
	}
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: isobar.Locality{Region: "us"}, To: isobar.Locality{Region: "eu"}, MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	sc := &sim.Scenario{
		Topology: &isobar.Topology{Revision: 1, Network: network, Services: services},
		Tick:     interval, Interval: interval, Length: 2 * time.Minute,
		Sources: []sim.Source{
			{Service: "frontend", From: isobar.MustLocality("us/a"), Demand: sim.Constant(500)},
			{Service: "backend", From: isobar.MustLocality("us/a"), Demand: sim.Constant(100)}, // somebody else in the same locality
		},
	}
	sc.Topology.Normalize()
	frames := run(t, sc)
	s, ok := frames[len(frames)-1].Plan.Service("backend")
	if !ok {
		t.Fatal("no such service")
	}
	sum := 0.0
	for i := range s.Result.Sources {
		sum += s.Result.Sources[i].Demand
	}
	if want := 2*500 + 100.0; sum < 0.99*want || sum > 1.01*want {
		t.Errorf("the backend is planned for %.0f requests/s, want %.0f", sum, want)
	}
}
