package plan_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// What a client says that came a moment ago drops nobody's requests, and what an
// overload needs is dropped whatever newcomers say.
func TestNewcomersRaiseNoDrop(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rate     float64 // requests/s of each of the 90 honest clients
		account  func(i int) string
		liars    int
		lie      float64 // requests/s of each
		dropping bool    // before
	}{
		{"one", 20, func(int) string { return "address 192.0.2.1" }, 1, 58_000, false},
		{"20 of an address each", 20, func(i int) string { return fmt.Sprint("address 192.0.2.", i) }, 20, 58_000, false},
		{"one, in overload", 60, func(int) string { return "address 192.0.2.1" }, 1, 58_000, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := testhelp.FourZones(t)
			top.Services[0].MaxShed = 0.5
			d := plan.NewDecider(interval, nil, t0)
			now := t0
			var p *plan.Plan
			tick := func(liars int) float64 {
				opened := now
				now = now.Add(interval)
				turn := &plan.Turn{Now: now, Interval: interval, Topology: top, Health: health.NewTable(nil), Previous: p, Version: 1}
				if p != nil {
					turn.Version = p.Version + 1
				}
				for i := range 90 + liars {
					rate, account, at := tc.rate, fmt.Sprint("address 10.0.0.", i), loc([]string{"us/a", "us/b", "eu/a"}[i%3])
					if i >= 90 {
						rate, account, at = tc.lie, tc.account(i-90), loc("us/a")
					}
					turn.Watched = append(turn.Watched, plan.Watched{Service: "checkout", Source: at, Streams: 1, Acked: t0})
					n := uint64(rate * interval.Seconds())
					sr := load.ServiceReport{Service: "checkout", Interval: interval, Localities: []load.LocalityReport{{Locality: &at, Issued: n, HasIssued: true, Succeeded: n}}}
					turn.Windows = append(turn.Windows, load.StreamWindow{
						Stream: load.StreamID(i + 1), Account: account, Opened: opened, Node: load.Node{ID: fmt.Sprint(i), Cluster: "web", Locality: at, Agent: load.AgentEnvoy},
						Reports: []load.Report{{Arrived: now, Services: []load.ServiceReport{sr}}},
					})
				}
				next, err := d.Tick(turn)
				if err != nil {
					t.Fatal(err)
				}
				p = next
				s, _ := p.Service("checkout")
				return s.Result.Drop
			}
			before := 0.0
			for range 40 {
				before = tick(0)
			}
			if (before > 0) != tc.dropping {
				t.Fatalf("without liars %.3f is dropped", before)
			}
			for k := range 11 {
				if drop := tick(tc.liars); drop > before {
					t.Fatalf("after %d reports of liars %.3f is dropped, %.3f before", k+1, drop, before)
				}
			}
		})
	}
}
