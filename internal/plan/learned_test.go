package plan_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// fit is two zones of four endpoints each that really serve 400 and 1000
// requests/s, and report how busy they are.
type fit struct {
	*loop

	k int
}

func newFit(t *testing.T, declared float64) *fit {
	t.Helper()
	return &fit{loop: twoZones(t, declared, &isobar.Service{ORCA: isobar.ORCA{On: true}})}
}

// twoZones is a loop over a service with four endpoints in each of two zones.
func twoZones(t *testing.T, declared float64, with *isobar.Service) *loop {
	t.Helper()
	network, err := isobar.NewNetwork(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := *with
	s.Name = "checkout"
	for i, z := range []string{"us/a", "us/b"} {
		sl := isobar.ServiceLocality{Locality: loc(z), MaxRate: declared}
		for e := range 4 {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: "10.0." + string(rune('0'+i)) + "." + string(rune('1'+e)) + ":80"})
		}
		s.Localities = append(s.Localities, sl)
	}
	top := &isobar.Topology{Network: network, Services: []isobar.Service{s}}
	top.Normalize()
	return &loop{t: t, decider: plan.NewDecider(interval, nil, t0), top: top, now: t0}
}

// tick lets an interval pass in which three clients in us/a send what they are
// told, at a rate that varies around a mean.
func (f *fit) tick(mean float64) {
	f.t.Helper()
	f.k++
	rate := mean * (1 + 0.3*math.Sin(float64(f.k)/10))
	opened := f.now
	f.now = f.now.Add(interval)
	sr := load.ServiceReport{Service: "checkout", Interval: interval}
	for _, z := range []string{"us/a", "us/b"} {
		capacity := map[string]float64{"us/a": 400, "us/b": 1000}[z]
		share := 0.0
		if a := f.plan.Assignment("checkout", loc("us/a")); a != nil {
			share = a.Share(loc(z))
		}
		n := uint64(rate * share * interval.Seconds() / 3)
		sr.Localities = append(sr.Localities, load.LocalityReport{
			Locality: new(loc(z)), Issued: n, HasIssued: true, Succeeded: n,
			Details: &load.LocalityDetails{Metrics: []load.MetricSum{{Name: load.MetricApplication, Requests: n, Total: float64(n) * min(1, rate*share/capacity)}}},
		})
	}
	var windows []load.StreamWindow
	for i := range load.StreamID(3) {
		windows = append(windows, load.StreamWindow{
			Stream: i + 1, Opened: opened, Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy},
			Reports: []load.Report{{Arrived: f.now, Services: []load.ServiceReport{sr}}},
		})
	}
	f.turn(f.decider.Tick, windows...)
}

func (f *fit) row(z string) plan.LocalityExplained {
	f.t.Helper()
	e, err := f.plan.Explain("checkout", loc("us/a"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range e.Localities {
		if r.Locality == loc(z) {
			return r
		}
	}
	f.t.Fatalf("no %s in %+v", z, e.Localities)
	return plan.LocalityExplained{}
}

// Capacities that are learned take the place of the rule that endpoints count
// equal, and survive a restart.
func TestLearnedCapacityIsUsed(t *testing.T) {
	f := newFit(t, 0)
	for range 40 {
		f.tick(250)
		if p := f.plan.Violations; len(p) > 0 {
			t.Fatal(p)
		}
	}
	for range 400 {
		f.tick(450)
		if p := f.plan.Violations; len(p) > 0 {
			t.Fatal(p)
		}
	}
	a := f.row("us/a")
	if a.Learned == nil || a.Learned.State != load.CapacityLearned || math.Abs(a.Learned.Capacity-400) > 40 || math.Abs(a.Capacity-400) > 40 {
		t.Fatalf("us/a %+v, learned %+v; want 400", a, a.Learned)
	}
	if a.Utilization > a.Ceiling+1e-6 {
		t.Errorf("us/a is planned to be %.0f%% full", 100*a.Utilization)
	}

	data, err := json.Marshal(f.plan.Save())
	if err != nil {
		t.Fatal(err)
	}
	var saved plan.Saved
	if err := json.Unmarshal(data, &saved); err != nil {
		t.Fatal(err)
	}
	next := newFit(t, 0)
	next.now, next.k = f.now.Add(interval), f.k
	if next.plan, err = plan.Restore(&saved, next.top, health.NewTable(nil), next.now, 1); err != nil {
		t.Fatal(err)
	}
	next.decider = plan.NewDecider(interval, saved.Demand(), next.now)
	if got := next.row("us/a"); math.Abs(got.Capacity-a.Capacity) > 1e-6 {
		t.Errorf("capacity %.1f after a restart, was %.1f", got.Capacity, a.Capacity)
	}
	next.tick(450)
	if got := next.row("us/a"); got.Learned == nil || math.Abs(got.Learned.InUse-a.Learned.InUse) > 30 {
		t.Errorf("after a restart and a tick: %+v, was %+v", got.Learned, a.Learned)
	}
}

// Where capacity is declared nothing is replaced, but a wrong declaration is
// named.
func TestLearnedCapacityWarns(t *testing.T) {
	f := newFit(t, 900)
	for range 300 {
		f.tick(330)
	}
	a := f.row("us/a")
	if a.Capacity != 900 || a.Learned == nil || a.Learned.InUse != 0 {
		t.Errorf("capacity %.0f, learned %+v", a.Capacity, a.Learned)
	}
	e, err := f.plan.Explain("checkout", loc("us/a"))
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Warnings, "\n"); !strings.Contains(text, "us/a declares 900 requests/s") || strings.Contains(text, "us/b declares") {
		t.Errorf("warnings: %s", text)
	}
}
