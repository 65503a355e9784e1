package plan_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// fleet is one service with three clients in us/a, a real decider, and data
// planes that may do as they like.
type fleet struct {
	t       *testing.T
	decider *plan.Decider
	top     *isobar.Topology
	plan    *plan.Plan
	now     time.Time
	opened  time.Time
	paused  plan.Pauses
	table   health.Table
	demand  float64 // requests/s of each client
	failing float64 // share of the requests that fail
	silent  bool    // nobody acknowledges

	land func(l isobar.Locality, share float64) float64 // nil = as told
	used func(l isobar.Locality, rate float64) float64  // utilization that is reported; nil = none
	was  map[isobar.Locality]float64                    // landed in the last tick, requests/s
}

func newFleet(t *testing.T, top *isobar.Topology) *fleet {
	t.Helper()
	f := &fleet{t: t, decider: plan.NewDecider(interval, nil, t0), top: top, now: t0, opened: t0, demand: 100}
	f.turn(f.decider.Reapply)
	return f
}

func (f *fleet) turn(step func(*plan.Turn) (*plan.Plan, error), windows ...load.StreamWindow) {
	f.t.Helper()
	turn := &plan.Turn{
		Now: f.now, Interval: interval, Windows: windows, Topology: f.top, Health: f.table,
		Paused: f.paused, Previous: f.plan, Version: 1,
		Subscribed: []load.Subscription{{Service: "checkout", Source: loc("us/a"), Streams: 3, AckedAt: f.now}},
	}
	if f.silent {
		turn.Subscribed[0].AckedAt = time.Time{}
	}
	if f.plan != nil {
		turn.Version = f.plan.Version + 1
	}
	p, err := step(turn)
	if err != nil {
		f.t.Fatal(err)
	}
	f.plan = p
}

// ticks lets intervals pass.
func (f *fleet) ticks(n int) {
	f.t.Helper()
	for range n {
		f.tick()
	}
}

func (f *fleet) tick() {
	f.t.Helper()
	f.now = f.now.Add(interval)
	var windows []load.StreamWindow
	f.was = map[isobar.Locality]float64{}
	assigned := f.plan.Assignment("checkout", loc("us/a"))
	for i := range load.StreamID(3) {
		sr := load.ServiceReport{Service: "checkout", Interval: interval}
		for j := range f.top.Services[0].Localities {
			l := f.top.Services[0].Localities[j].Locality
			share := assigned.Share(l)
			if f.land != nil {
				share = f.land(l, share)
			}
			n := uint64(math.Round(f.demand * interval.Seconds() * share))
			lr := load.LocalityReport{Locality: &l, Issued: n, HasIssued: true, Errors: uint64(math.Round(float64(n) * f.failing))}
			lr.Succeeded = n - lr.Errors
			f.was[l] += float64(n) / interval.Seconds()
			if f.used != nil && n > 0 {
				lr.Details = &load.LocalityDetails{Metrics: []load.MetricSum{{Name: load.MetricApplication, Requests: n, Total: float64(n) * f.used(l, 3*f.demand*share)}}}
			}
			sr.Localities = append(sr.Localities, lr)
		}
		windows = append(windows, load.StreamWindow{
			Stream: i + 1, Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy}, Opened: f.opened,
			Reports: []load.Report{{Arrived: f.now, Services: []load.ServiceReport{sr}}},
		})
	}
	f.turn(f.decider.Tick, windows...)
}

func (f *fleet) service() *plan.Service {
	f.t.Helper()
	s, ok := f.plan.Service("checkout")
	if !ok {
		f.t.Fatal("the service is gone")
	}
	return s
}

func (f *fleet) score() *plan.ScoreExplained {
	f.t.Helper()
	return f.service().Scores.Explain(f.service().Mode())
}

func (f *fleet) rollout() *plan.RolloutExplained {
	f.t.Helper()
	return f.service().Rollout.Explain(f.service().Spec.Promote)
}

// declared is a topology of threeZones in which all is declared.
func declared(t *testing.T, mode isobar.Mode) *isobar.Topology {
	t.Helper()
	top := threeZones(t)
	for i := range top.Services[0].Localities {
		top.Services[0].Localities[i].MaxRate = 400
	}
	top.Services[0].Mode = mode
	return top
}

func TestScore(t *testing.T) {
	half := func(_ isobar.Locality, rate float64) float64 { return rate / 800 }
	for name, c := range map[string]struct {
		mode isobar.Mode
		set  func(*fleet)
		want float64 // below 0: none
		part string
	}{
		"clients that obey":         {isobar.ModeFull, func(*fleet) {}, 1, "landing"},
		"in observe":                {isobar.ModeObserve, func(*fleet) {}, 1, "landing"},
		"nobody acknowledges":       {isobar.ModeFull, func(f *fleet) { f.silent = true }, -1, ""},
		"too little traffic":        {isobar.ModeFull, func(f *fleet) { f.demand = 0.05 }, -1, ""},
		"utilization as it should":  {isobar.ModeFull, func(f *fleet) { f.used = func(_ isobar.Locality, rate float64) float64 { return rate / 400 } }, 1, "utilization"},
		"clients that do otherwise": {isobar.ModeObserve, func(f *fleet) { f.land = func(isobar.Locality, float64) float64 { return 1. / 3 } }, 0.36, "landing"},
		"capacity twice as large":   {isobar.ModeObserve, func(f *fleet) { f.used = half }, 0.65, "utilization"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, declared(t, c.mode))
			c.set(f)
			f.ticks(60)
			score := f.score()
			if c.want < 0 {
				if score != nil {
					t.Fatalf("%s, want none", score)
				}
				return
			}
			if score == nil {
				t.Fatal("no score")
			}
			if math.Abs(score.Score-c.want) > 0.03 || !strings.Contains(score.String(), c.part) {
				t.Errorf("%s, want %v by %s", score, c.want, c.part)
			}
			e, err := f.plan.Explain("checkout", loc("us/a"))
			if err != nil || e.Score == nil || e.Score.Score != score.Score {
				t.Errorf("explained as %v %v, want %v", e.Score, err, score)
			}
		})
	}
}

// TestDemandCountsInObserveOnly: demand that nobody can foresee is a reason to
// go on looking, and none to stop acting on it.
func TestDemandCountsInObserveOnly(t *testing.T) {
	scores := map[isobar.Mode]*plan.ScoreExplained{}
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		f := newFleet(t, declared(t, mode))
		for i := range 60 {
			f.demand = []float64{60, 140}[i/2%2]
			f.tick()
		}
		scores[mode] = f.score()
	}
	observe, full := scores[isobar.ModeObserve], scores[isobar.ModeFull]
	if observe == nil || full == nil {
		t.Fatalf("no score: %v %v", observe, full)
	}
	if observe.Score > 0.8 || observe.Demand == nil || observe.Score != *observe.Demand {
		t.Errorf("in observe %s", observe)
	}
	if full.Score < 0.95 || full.Demand == nil || *full.Demand > 0.8 {
		t.Errorf("in full %s", full)
	}
}

// TestScoreForgetsOldWindows: what was long ago no longer counts.
func TestScoreForgetsOldWindows(t *testing.T) {
	f := newFleet(t, declared(t, isobar.ModeObserve))
	f.land = func(isobar.Locality, float64) float64 { return 1. / 3 }
	f.ticks(30)
	if s := f.score(); s == nil || s.Score > 0.5 {
		t.Fatalf("clients that do otherwise: %v", s)
	}
	f.land = nil
	f.ticks(100)
	s := f.score()
	if s == nil || s.Score < 0.99 || s.Windows > 12 || s.To.Sub(s.From) > 8*time.Minute {
		t.Fatalf("clients that obey again: %v", s)
	}
}
