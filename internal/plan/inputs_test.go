package plan_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// As reports go missing the service goes down the ladder, one rung at a time,
// and up again when they come back. Clients that fall silent are not load that
// is gone.
func TestMissingReports(t *testing.T) {
	for _, tc := range []struct {
		name   string
		silent int // of ten clients
		want   plan.InputState
	}{
		{"one in ten", 1, plan.InputFresh},
		{"three in ten", 3, plan.InputStale},
		{"six in ten", 6, plan.InputHeld},
		{"all", 10, plan.InputHeld},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFit(t, 900)
			f.open = true
			opened := f.now
			tick := func(silent int) plan.Explanation {
				f.now = f.now.Add(interval)
				var windows []load.StreamWindow
				for i := range 10 {
					w := load.StreamWindow{Stream: load.StreamID(i + 1), Opened: opened, Node: load.Node{ID: "n", Locality: loc("us/a"), Agent: load.AgentEnvoy}}
					if i >= silent {
						w.Reports = []load.Report{{Arrived: f.now, Services: []load.ServiceReport{{
							Service: "checkout", Interval: interval,
							Localities: []load.LocalityReport{{Locality: new(loc("us/a")), Issued: 100, HasIssued: true, Succeeded: 100}},
						}}}}
					}
					windows = append(windows, w)
				}
				f.turn(f.decider.Tick, windows...)
				e, err := f.plan.Explain("checkout", loc("us/a"))
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			var e plan.Explanation
			for range 6 {
				e = tick(0)
			}
			if e.Reports != plan.InputFresh || e.Stale != 0 || e.Hold != "" {
				t.Fatalf("before: %s, %.2f stale, hold %q", e.Reports, e.Stale, e.Hold)
			}
			e = tick(tc.silent) // late, not missing
			if e.Reports != plan.InputFresh {
				t.Errorf("after one interval: %s", e.Reports)
			}
			e = tick(tc.silent)
			if e.Reports != tc.want || (e.Hold != "") != (tc.want == plan.InputHeld) {
				t.Errorf("after two intervals: %s, %.2f stale, hold %q; want %s", e.Reports, e.Stale, e.Hold, tc.want)
			}
			if e.Demand.Rate < 195 {
				t.Errorf("demand %.0f, was 200", e.Demand.Rate)
			}
			if e = tick(0); e.Reports != plan.InputFresh || e.Hold != "" {
				t.Errorf("after they came back: %s, hold %q", e.Reports, e.Hold)
			}
			for range 60 {
				e = tick(10)
			}
			if e.Reports != plan.InputAbsent || e.Hold != "" || e.Demand.Rate > 1 {
				t.Errorf("five minutes after the last report: %s, hold %q, demand %.1f", e.Reports, e.Hold, e.Demand.Rate)
			}
		})
	}
}

// On old input shares move at half the pace.
func TestStaleReportsSlowDown(t *testing.T) {
	moved := func(stale float64) float64 {
		f := newFit(t, 900)
		in := plan.Input{Now: t0, Topology: f.top, Version: 1, Load: demandOf(300, 0)}
		p, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		before := p.Assignment("checkout", loc("us/a")).Share(loc("us/a"))
		p, err = plan.Next(plan.Input{Now: t0.Add(interval), Topology: f.top, Version: 2, Previous: p, Load: demandOf(700, stale)})
		if err != nil {
			t.Fatal(err)
		}
		return before - p.Assignment("checkout", loc("us/a")).Share(loc("us/a"))
	}
	fresh, stale := moved(0), moved(0.3)
	if fresh < 0.02 || stale > 0.6*fresh || stale <= 0 {
		t.Errorf("%.1f points moved on fresh reports, %.1f on stale ones", 100*fresh, 100*stale)
	}
	if held := moved(0.6); held != 0 {
		t.Errorf("%.1f points moved on reports that are mostly missing", 100*held)
	}
}

func demandOf(rate, stale float64) *load.Snapshot {
	return &load.Snapshot{At: time.Time{}, Services: []load.ServiceLoad{{
		Name: "checkout", Coverage: 1, Covered: true, Stale: stale,
		Sources: []load.SourceLoad{{Source: isobar.MustLocality("us/a"), Demand: rate, Raw: rate, Nodes: 3}},
	}}}
}
