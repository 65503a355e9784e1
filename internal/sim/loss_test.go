//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

const (
	lostFrom = 5 * time.Minute
	lostTo   = 20 * time.Minute
)

// lossy is the fleet of three zones in two regions under a load that fits, with
// a region that is nearly full.
func lossy(t *testing.T, losses ...sim.Loss) *sim.Scenario {
	t.Helper()
	sc := &sim.Scenario{
		Topology: testhelp.FourZones(t), Tick: interval, Interval: interval, Length: lostTo + 5*time.Minute, Step: interval / 10,
		PushDelay: sim.Delay{Base: time.Second}, ReportDelay: sim.Delay{Base: time.Second}, HealthDelay: 10 * time.Second,
		Losses: losses,
	}
	for i, z := range []string{"eu/a", "eu/b", "us/a", "us/b", "us/c"} {
		sc.Sources = append(sc.Sources, clients(z, constant([]float64{0.2, 0.3, 1.2, 0.9, 0.6}[i]*640))...)
	}
	return sc
}

func levelOf(f sim.Frame) plan.DegradationLevel {
	s, _ := f.Plan.Service("checkout")
	if worst, ok := s.Degraded(); ok {
		return worst.Level
	}
	return plan.LevelFresh
}

// latencies returns the mean latency before a moment, and the worst tick from it on.
func latencies(frames []sim.Frame, at time.Duration) (before, worst float64) {
	n := 0.0
	for _, f := range frames {
		switch {
		case f.At <= at && f.At > at-2*time.Minute:
			before += f.Sample.MeanMS
			n++
		case f.At > at:
			worst = max(worst, f.Sample.MeanMS)
		}
	}
	return before / n, worst
}

// What a fleet loses while nobody reports is the fine tuning: demand goes on
// being served, no locality is drained or filled beyond its ceiling, and at the
// end all is as it was.
func TestReportsLost(t *testing.T) {
	for _, tc := range []struct {
		name    string
		scope   string
		deepest plan.DegradationLevel
		worst   float64 // of the mean latency before
	}{
		{"of all", "", plan.LevelDecaying, 3},
		{"of the busy region", "us", plan.LevelDecaying, 3},
		{"of the quiet region", "eu", plan.LevelFresh, 1.1},
		{"of a zone", "us/a", plan.LevelCautious, 1.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			loss := sim.Loss{Input: plan.InputReports, From: lostFrom, To: lostTo}
			if tc.scope != "" {
				loss.Scope = isobar.MustLocality(tc.scope)
			}
			frames := run(t, lossy(t, loss))
			seen := map[plan.DegradationLevel]int{}
			for _, f := range frames {
				seen[levelOf(f)]++
				if f.Sample.Fullest > 0.82 && f.At > lostFrom {
					t.Fatalf("at %v: the fullest locality is at %.2f", f.At, f.Sample.Fullest)
				}
			}
			if seen[tc.deepest] == 0 || (tc.deepest != plan.LevelDecaying && seen[plan.LevelDecaying] > 0) {
				t.Errorf("levels %v, want %s to be the deepest", seen, tc.deepest)
			}
			before, worst := latencies(frames, lostFrom)
			t.Logf("levels %v, mean latency %.2f ms before, %.2f ms at worst, %.2f ms in the end", seen, before, worst, frames[len(frames)-1].Sample.MeanMS)
			if worst > tc.worst*before {
				t.Errorf("mean latency %.2f ms at worst, was %.2f ms", worst, before)
			}
			if last := frames[len(frames)-1]; levelOf(last) != plan.LevelFresh || last.Sample.MeanMS > 1.02*before {
				t.Errorf("in the end %s with %.2f ms, was %.2f ms", levelOf(last), last.Sample.MeanMS, before)
			}
		})
	}
}

// While health and topology are old, the fleet follows its load, at half the
// pace, and nothing is taken for unhealthy again.
func TestHealthAndTopologyLost(t *testing.T) {
	sc := lossy(t,
		sim.Loss{Input: plan.InputHealth, From: lostFrom, To: lostTo},
		sim.Loss{Input: plan.InputTopology, From: lostFrom, To: lostTo})
	us := isobar.MustLocality("us/a")
	sc.Outages = []sim.Outage{ // known before, and over while nobody knows
		{Locality: isobar.MustLocality("us/b"), Share: 0.5, From: lostFrom - time.Minute, To: lostFrom + time.Minute},
	}
	for i := range sc.Sources {
		if sc.Sources[i].From == us {
			sc.Sources[i].Demand = sim.Times(sc.Sources[i].Demand, sim.Step(lostFrom+5*time.Minute, 1.2))
		}
	}
	frames := run(t, sc)
	usable := func(f sim.Frame) int {
		s, _ := f.Plan.Service("checkout")
		n := 0
		for i := range s.Sites {
			n += s.Sites[i].Group.Usable()
		}
		return n
	}
	known, share := 0, map[bool]float64{}
	for _, f := range frames {
		late := f.At > lostFrom+5*time.Minute // when demand has grown
		switch {
		case f.At <= lostFrom:
			known = usable(f)
		case f.At < lostTo:
			if got := usable(f); got != known {
				t.Fatalf("at %v: %d endpoints are taken for healthy, %d were when that was last known", f.At, got, known)
			}
			if f.At > lostFrom+time.Minute && levelOf(f) != plan.LevelCautious {
				t.Fatalf("at %v: %s", f.At, levelOf(f))
			}
			share[late] = f.Plan.Assignment("checkout", us).Share(us)
		}
		if f.At > time.Minute && f.Sample.Fullest > 0.97 {
			t.Errorf("at %v: the fullest locality is at %.2f", f.At, f.Sample.Fullest)
		}
	}
	last := frames[len(frames)-1]
	if share[true] >= share[false]-0.01 {
		t.Errorf("the share of us/a went from %.3f to %.3f: load is not followed", share[false], share[true])
	}
	if levelOf(last) != plan.LevelFresh || usable(last) <= known {
		t.Errorf("in the end %s, %d endpoints are healthy, %d were", levelOf(last), usable(last), known)
	}
}

// Clients that no assignment reaches go on with the one they have, and get the
// newest when they can be reached again.
func TestPushesLost(t *testing.T) {
	sc := lossy(t, sim.Loss{Input: sim.Pushes, Scope: isobar.MustLocality("us/a"), From: lostFrom, To: lostTo})
	for i := range sc.Sources {
		if sc.Sources[i].From.Region == "us" {
			sc.Sources[i].Demand = sim.Times(sc.Sources[i].Demand, sim.Step(lostFrom+time.Minute, 1.15))
		}
	}
	var before, worst, end float64
	for _, f := range run(t, sc) {
		switch {
		case f.At <= lostFrom:
			before = f.Sample.Fullest
		case f.At > lostFrom+5*time.Minute && f.At <= lostTo:
			worst = max(worst, f.Sample.Fullest)
		}
		end = f.Sample.Fullest
	}
	if before > 0.81 || worst < 0.85 || end > 0.81 {
		t.Errorf("the fullest locality is at %.3f before, at %.3f while us/a can't be told, and at %.3f in the end", before, worst, end)
	}
}
