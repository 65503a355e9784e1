//go:build !race

package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// TestClientsEject: each client loses five requests to each endpoint of a zone that refuses,
// and what it sends there until its workers know. Whenever ejections end, which is after 10 s,
// then 20 s, and so on, it loses more. Without ejection it loses all that it sends there.
func TestClientsEject(t *testing.T) {
	const length, dies = 100 * time.Second, 10 * time.Second
	sc := &sim.Scenario{
		Topology: fourZones(t), Tick: interval, Interval: interval, Step: 100 * time.Millisecond, Warmup: dies, Length: length, Requests: true,
		Sources: []sim.Source{{Service: "checkout", From: loc("us/b"), Clients: 2, Demand: sim.Constant(200)}},
		Outages: []sim.Outage{{Locality: loc("us/b"), From: dies, To: length, Unnoticed: true}},
	}
	ejection := sim.Ejection{Consecutive: 5, Interval: 2 * time.Second, Base: 10 * time.Second}
	// 90 s of 200/s. A client loses about 17 requests until the first endpoint is ejected, and
	// those of the second in which its workers know of this one only. Ejections end after about
	// 11 s, 33 s and 65 s. Its workers know of the first endpoint at once, of the others a second
	// later, and a second after the first of these is ejected again, they know of all: the client loses the requests
	// of 2.13 s. In the first of these seconds, failover sends a quarter of the endpoints 35% of its requests.
	const sent = 90 * 200
	const first, again, failover = 2 * (17 + 100), 3 * 2 * 213, 3 * 2 * (213 - 65)
	for _, tt := range []struct {
		policy      string
		ejection    sim.Ejection
		least, most float64
	}{
		{"failover", ejection, 0.9 * (first + failover) / sent, 1.1 * (first + failover) / sent},
		{"failover", sim.Ejection{}, 0.99, 1},
		// It makes its weights without the endpoints that the main thread has ejected, so it loses less.
		{"load-aware", ejection, 0.9 * first / sent, 0.9 * (first + failover) / sent},
		{"load-aware", sim.Ejection{}, 0.2, 0.3}, // it sends by the utilization of 20% that it heard of last
		{sim.NameStatic, ejection, 0.9 * (first + again) / sent, 1.1 * (first + again) / sent},
		{sim.NameClosest, ejection, 0.99, 1}, // proxies that eject nobody
	} {
		sc.Ejection = tt.ejection
		r := simulate(t, sc, tt.policy)
		if got := r.Failed; got < tt.least || got > tt.most {
			t.Errorf("%s with %+v: %.4f of the requests fail, want %.4f to %.4f", tt.policy, tt.ejection, got, tt.least, tt.most)
		}
	}
}

// TestServedClustersEject: Envoys of Isobar leave a zone that refuses by the outlier detection
// of the cluster that Isobar serves, before any health check knows, and Isobar learns of
// the zone from what they report. With another policy among the localities, they come back to
// it whenever ejections end, since that policy goes by utilization alone.
func TestServedClustersEject(t *testing.T) {
	const length, dies = 100 * time.Second, 10 * time.Second
	sc := &sim.Scenario{
		Topology: fourZones(t), Tick: 2 * time.Second, Interval: 2 * time.Second, Step: 100 * time.Millisecond, Warmup: dies, Length: length,
		Requests: true, Served: true,
		Sources: []sim.Source{{Service: "checkout", From: loc("us/b"), Clients: 2, Demand: sim.Constant(200)}},
		Outages: []sim.Outage{{Locality: loc("us/b"), From: dies, To: length, Unnoticed: true}},
	}
	// Until they are left for the first time, about 40 of 18,000 requests fail, and the 200 of the second
	// in which workers know of one ejection only. Isobar knows after a report and a tick, at most 4 s.
	// The first ejections last for a second or two, and clients lose the requests of two seconds after
	// each of the ten or so ends: up to 25%.
	alone, beneath := simulate(t, sc, sim.NameIsobar).Failed, simulate(t, sc, "isobar+load-aware").Failed
	t.Logf("failed: %.4f, %.4f with load_aware_locality", alone, beneath)
	if alone < 0.013 || alone > 0.044 {
		t.Errorf("%.4f of the requests fail with Isobar, want 0.013 to 0.044", alone)
	}
	if beneath < 2*alone || beneath > 0.25 {
		t.Errorf("%.4f of the requests fail with load_aware_locality beneath Isobar, want %.4f to 0.25", beneath, 2*alone)
	}
}

// TestServedClustersLimit: where clients wait no longer than a timeout that Isobar knows,
// its clusters limit the requests in progress: an overload fills no queues, so fewer requests
// fail before Isobar moves them away.
func TestServedClustersLimit(t *testing.T) {
	const length, warm = 100 * time.Second, 40 * time.Second
	sc := &sim.Scenario{
		Topology: fourZones(t), Tick: 2 * time.Second, Interval: 2 * time.Second, Step: 100 * time.Millisecond, Warmup: warm, Length: length,
		Requests: true, Served: true, Timeout: time.Second,
	}
	for _, l := range sc.Topology.Services[0].Localities {
		demand := sim.Constant(0.5 * l.MaxRate)
		if l.Locality == loc("us/b") {
			demand = sim.Times(demand, sim.Step(warm, 3))
		}
		sc.Sources = append(sc.Sources, sim.Source{Service: "checkout", From: l.Locality, Clients: 2, Demand: demand})
	}
	unlimited := simulate(t, sc, sim.NameIsobar)
	sc.Topology.Services[0].RequestTimeout = isobar.RequestTimeout(time.Second)
	limited := simulate(t, sc, sim.NameIsobar)
	t.Logf("failed: %.4f without, %.4f with a limit", unlimited.Failed, limited.Failed)
	if limited.Failed >= unlimited.Failed {
		t.Errorf("%.4f of the requests fail with a limit of requests in progress, %.4f without", limited.Failed, unlimited.Failed)
	}
}

func simulate(t *testing.T, sc *sim.Scenario, policy string) *sim.Result {
	t.Helper()
	policies := sim.Policies()
	r, err := sim.Run(t.Context(), sc, policies[slices.IndexFunc(policies, func(p sim.Policy) bool { return p.Name == policy })], nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFailoverKnowsNoWeightsOfLocalities: where three endpoints of four in a zone are ejected,
// failover sends the fourth as much as each endpoint of another zone of the same priority, not
// the part that the zone's weight would leave it.
func TestFailoverKnowsNoWeightsOfLocalities(t *testing.T) {
	const length, dies = 100 * time.Second, 10 * time.Second
	sc := &sim.Scenario{
		Topology: fourZones(t), Tick: interval, Interval: interval, Step: 100 * time.Millisecond, Warmup: 20 * time.Second, Length: length, Requests: true,
		Sources:  []sim.Source{{Service: "checkout", From: loc("ap/a"), Clients: 2, Demand: sim.Constant(200)}},
		Outages:  []sim.Outage{{Locality: loc("us/a"), Share: 0.75, From: dies, To: length, Unnoticed: true}},
		Ejection: sim.Ejection{Consecutive: 5, Interval: 2 * time.Second, Base: time.Hour},
	}
	used := simulate(t, sc, "failover").Used[0] // eu/a, us/a, us/b, us/c; of the endpoints that are up
	if ratio := used[1] / used[2]; ratio < 0.9 || ratio > 1.1 {
		t.Errorf("the endpoint that is left is used %.2f times as much as others, want 1: %v", ratio, used)
	}
}
