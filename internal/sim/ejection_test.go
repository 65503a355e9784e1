package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/sim"
)

// TestClientsEject: each client loses five requests to each endpoint of a zone that
// refuses, and then five more to each whenever an ejection ends, which is after 10 s,
// then 20 s, and so on. Without ejection it loses all that it sends there.
func TestClientsEject(t *testing.T) {
	const length, dies = 100 * time.Second, 10 * time.Second
	sc := &sim.Scenario{
		Topology: fourZones(t), Tick: interval, Interval: interval, Step: 100 * time.Millisecond, Warmup: dies, Length: length, Requests: true,
		Sources: []sim.Source{{Service: "checkout", From: loc("us/b"), Clients: 2, Demand: sim.Constant(200)}},
		Outages: []sim.Outage{{Locality: loc("us/b"), From: dies, To: length, Unnoticed: true}},
	}
	ejection := sim.Ejection{Consecutive: 5, Interval: 2 * time.Second, Base: 10 * time.Second}
	// 90 s of 200/s; ejections end after about 11 s, 33 s and 65 s.
	const sent, eject = 90 * 200, 4 * 2 * 4 * 5
	for _, tt := range []struct {
		policy      string
		ejection    sim.Ejection
		least, most float64
	}{
		{"failover", ejection, 0.9 * eject / sent, 1.2 * eject / sent},
		{"failover", sim.Ejection{}, 0.99, 1},
		{"load-aware", ejection, 0.9 * eject / sent, 1.2 * eject / sent},
		{"load-aware", sim.Ejection{}, 0.2, 0.3}, // it sends by the utilization of 20% that it heard of last
		{sim.NameStatic, ejection, 0.9 * eject / sent, 1.2 * eject / sent},
		{sim.NameClosest, ejection, 0.99, 1}, // proxies that eject nobody
	} {
		sc.Ejection = tt.ejection
		policies := sim.Policies()
		at := slices.IndexFunc(policies, func(p sim.Policy) bool { return p.Name == tt.policy })
		r, err := sim.Run(t.Context(), sc, policies[at], nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Failed; got < tt.least || got > tt.most {
			t.Errorf("%s with %+v: %.4f of the requests fail, want %.4f to %.4f", tt.policy, tt.ejection, got, tt.least, tt.most)
		}
	}
}
