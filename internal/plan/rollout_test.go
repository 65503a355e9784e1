package plan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

const (
	trialWindows = 3
	windowTicks  = 6 // of 5 s, in a window of the score
)

// autoFleet is a fleet in mode auto, whose clients send more to us/a than it
// should carry: 300 requests/s where 240 are below the ceiling.
func autoFleet(t *testing.T) *fleet {
	t.Helper()
	top := threeZones(t)
	s := &top.Services[0]
	for i := range s.Localities {
		s.Localities[i].MaxRate, s.Localities[i].Concurrency = 300, 6
	}
	s.Mode, s.Promote = isobar.ModeAuto, isobar.Promotion{Windows: trialWindows}
	return newFleet(t, top)
}

// until lets windows pass until the mode is served, and returns how many.
func (f *fleet) until(mode isobar.Mode, most int) int {
	f.t.Helper()
	for n := range most * windowTicks {
		if f.service().Mode() == mode {
			return n / windowTicks
		}
		f.tick()
	}
	f.t.Fatalf("mode %s is not served after %d windows: %s, score %v", mode, most, f.rollout(), f.score())
	return 0
}

func disobey(isobar.Locality, float64) float64 { return 1. / 3 }

func TestAutoGoesOnWhileThePredictionHolds(t *testing.T) {
	f := autoFleet(t)
	away := func() float64 { return 1 - f.plan.Assignment("checkout", loc("us/a")).Share(loc("us/a")) }
	f.tick()
	if m, a := f.service().Mode(), away(); m != isobar.ModeObserve || a > 0 {
		t.Fatalf("begins with %s, %v away from the nearest", m, a)
	}
	if n := f.until(isobar.ModeBounded, trialWindows+2); n < trialWindows {
		t.Fatalf("bounded after %d windows, want %d", n, trialWindows)
	}
	f.ticks(3)
	if a := away(); a <= 0 || a > 0.2+1e-9 {
		t.Errorf("bounded: %v away from the nearest", a)
	}
	if n := f.until(isobar.ModeFull, trialWindows+3); n < trialWindows-1 {
		t.Fatalf("full after %d windows more, want %d", n, trialWindows)
	}
	f.ticks(20)
	if a := away(); a <= 0.2 {
		t.Errorf("full: %v away from the nearest", a)
	}
	tr := f.rollout()
	if tr.Promoted != 2 || tr.Demoted != 0 || tr.Needed != 0 || tr.Back || !strings.Contains(tr.Why, "promoted to full because") {
		t.Errorf("%+v", tr)
	}
}

func TestAutoStopsWhereItMust(t *testing.T) {
	f := autoFleet(t)
	f.top.Services[0].Promote.Until = isobar.ModeBounded
	f.until(isobar.ModeBounded, trialWindows+2)
	f.ticks(20 * windowTicks)
	if tr := f.rollout(); tr.Mode != isobar.ModeBounded || tr.Needed != 0 {
		t.Errorf("until bounded: %s", tr)
	}

	f = autoFleet(t)
	f.land = disobey
	f.ticks(20 * windowTicks)
	if tr := f.rollout(); tr.Mode != isobar.ModeObserve || tr.Promoted > 0 {
		t.Errorf("clients that do not obey: %s", tr)
	}

	f = autoFleet(t)
	f.paused = plan.Pauses{{Service: "checkout", Since: f.now}}
	f.ticks(10 * windowTicks)
	if tr := f.rollout(); tr.Mode != isobar.ModeObserve || tr.Good > 0 {
		t.Errorf("paused: %s", tr)
	}
	if f.score() == nil {
		t.Error("what is paused is not scored")
	}
}

// TestAutoGoesBack: at once where the prediction fails, or things get worse than
// they were before the step.
func TestAutoGoesBack(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(*fleet)
		why    string
	}{
		"clients that obey no longer": {func(f *fleet) { f.land = disobey }, "go to other localities than predicted"},
		"requests fail":               {func(f *fleet) { f.failing = 0.1 }, "requests fail"},
		"a capacity that is not there": {func(f *fleet) {
			f.used = func(l isobar.Locality, rate float64) float64 {
				return min(1, rate/map[string]float64{"us/a": 300, "us/b": 60, "eu/a": 300}[l.String()])
			}
		}, "because"},
		"a capacity that is larger": {func(f *fleet) { f.used = func(_ isobar.Locality, rate float64) float64 { return rate / 900 } }, "utilization is off"},
	} {
		t.Run(name, func(t *testing.T) {
			f := autoFleet(t)
			f.until(isobar.ModeBounded, trialWindows+2)
			f.until(isobar.ModeFull, trialWindows+3)
			f.ticks(windowTicks)
			var changes []plan.Change
			before := f.plan
			c.happen(f)
			for range 2 * windowTicks {
				f.tick()
				if x, changed := plan.Changed(before, f.plan, plan.Origin{}); changed {
					changes = append(changes, x)
				}
				before = f.plan
			}
			tr := f.rollout()
			if tr.Mode == isobar.ModeFull || !tr.Back || tr.Failed == 0 || !strings.Contains(tr.Why, c.why) {
				t.Fatalf("%s; score %v", tr, f.score())
			}
			if !slices.ContainsFunc(changes, func(x plan.Change) bool {
				return len(x.Services) == 1 && strings.HasPrefix(x.Services[0].Reason, "demoted to bounded because ")
			}) {
				t.Errorf("the history does not tell: %+v", changes)
			}
		})
	}
}

// TestAutoTakesItsTimeAfterAStepBack: each step back doubles what the next one
// forward takes.
func TestAutoTakesItsTimeAfterAStepBack(t *testing.T) {
	f := autoFleet(t)
	for fails := range 4 {
		n := f.until(isobar.ModeBounded, trialWindows<<fails+3)
		if n < trialWindows<<fails-1 {
			t.Fatalf("%d steps back, and forward after %d windows", fails, n)
		}
		f.land = disobey
		f.until(isobar.ModeObserve, 3)
		f.land = nil
	}
}

// TestAutoGoesOnFromAFixedMode: what an operator had decided is where it begins,
// and on trial.
func TestAutoGoesOnFromAFixedMode(t *testing.T) {
	f := autoFleet(t)
	auto := f.top.Services[0]
	fixed := *f.top
	fixed.Services = slices.Clone(f.top.Services)
	fixed.Services[0].Mode = isobar.ModeFull
	full := &fixed
	changed := *f.top
	changed.Services = []isobar.Service{auto}
	f = newFleet(t, full)
	f.ticks(10)
	f.top = &changed
	f.turn(f.decider.Reapply)
	if tr := f.rollout(); tr == nil || tr.Mode != isobar.ModeFull || tr.Trial != trialWindows {
		t.Fatalf("%+v", tr)
	}
	f.top = full
	f.turn(f.decider.Reapply)
	if tr := f.rollout(); tr != nil || f.service().Mode() != isobar.ModeFull {
		t.Fatalf("a fixed mode: %+v", tr)
	}
}

func TestAutoSurvivesARestart(t *testing.T) {
	f := autoFleet(t)
	f.until(isobar.ModeBounded, trialWindows+2)
	f.land = disobey
	f.until(isobar.ModeObserve, 3)
	f.land = nil
	f.until(isobar.ModeBounded, 2*trialWindows+3)
	want := *f.rollout()
	kept := f.plan.Save()
	data, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	restore := func(change func(*plan.SavedRollout)) *plan.RolloutExplained {
		var saved plan.Saved
		if err := json.Unmarshal(data, &saved); err != nil {
			t.Fatal(err)
		}
		change(saved.Services[0].Rollout)
		p, err := plan.Restore(&saved, f.top, health.NewTable(nil), f.now, saved.Version+1)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := p.Service("checkout")
		if s.Mode() != s.Result.Mode {
			t.Errorf("mode %s, and what is served is %s", s.Mode(), s.Result.Mode)
		}
		return s.Rollout.Explain(s.Spec.Promote)
	}
	if got := restore(func(*plan.SavedRollout) {}); !got.Stepped.Equal(want.Stepped) || got.Mode != want.Mode || got.Failed != want.Failed || got.Why != want.Why || got.Trial != want.Trial {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, change := range map[string]func(*plan.SavedRollout){
		"a later format": func(s *plan.SavedRollout) { s.Format++ },
		"no mode":        func(s *plan.SavedRollout) { s.Mode = 77 },
		"mode auto":      func(s *plan.SavedRollout) { s.Mode = isobar.ModeAuto },
	} {
		if got := restore(change); got.Mode != isobar.ModeObserve || got.Failed != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := restore(func(s *plan.SavedRollout) { s.Good, s.Failed = -5, -5 }); got.Good != 0 || got.Failed != 0 {
		t.Errorf("nonsense: %+v", got)
	}
}

// TestAutoDoesNotOscillate: whatever clients do and for how long, steps forward come
// only after as many good windows as it takes, and steps back leave ever more
// time between them.
func TestAutoDoesNotOscillate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := autoFleet(t)
		f.top.Services[0].Promote.Until = rapid.SampledFrom([]isobar.Mode{isobar.ModeFull, isobar.ModeBounded}).Draw(rt, "until")
		// When clients last did not obey, or a step was taken; when something was
		// last wrong, and when all was last well.
		obeyed, well, ill := f.now, f.now, f.now
		mode, failed := isobar.ModeObserve, 0
		for range rapid.IntRange(1, 6).Draw(rt, "spells") {
			kind := rapid.SampledFrom([]string{"good", "good", "bad", "fails"}).Draw(rt, "kind")
			f.land, f.failing = nil, 0
			switch kind {
			case "bad":
				f.land = disobey
			case "fails":
				f.failing = 0.2
			}
			for range rapid.IntRange(1, 80).Draw(rt, "ticks") {
				f.tick()
				tr := f.rollout()
				now, needed := tr.Mode, trialWindows<<min(failed, 6)
				if kind != "good" {
					well = f.now
				}
				if kind != "bad" {
					ill = f.now
				}
				switch {
				case now > isobar.ModeObserve || now < f.top.Services[0].Promote.Until || max(now, mode)-min(now, mode) > 1:
					rt.Fatalf("mode %s after %s", now, mode)
				case now < mode && f.now.Sub(obeyed) < time.Duration(needed-1)*30*time.Second:
					rt.Fatalf("%s, and it obeys for %s, with %d windows needed", tr, f.now.Sub(obeyed), needed)
				case now > mode && f.now.Sub(well) > time.Minute:
					rt.Fatalf("%s, and all is well for %s", tr, f.now.Sub(well))
				case kind == "bad" && f.now.Sub(ill) > 3*time.Minute && now != isobar.ModeObserve:
					rt.Fatalf("%s, and clients have not obeyed for %s", tr, f.now.Sub(ill))
				}
				if kind == "bad" || now != mode {
					obeyed = f.now
				}
				mode, failed = now, tr.Failed
			}
		}
	})
}

// A source that sends nothing yet, and does not reach its own locality, is sent elsewhere in
// mode auto as in the mode that auto has come to.
func TestAutoKeepsNewSourcesFromWhatTheyCannotReach(t *testing.T) {
	for _, mode := range []isobar.Mode{isobar.ModeFull, isobar.ModeAuto} {
		top := threeZones(t)
		top.Services[0].Mode = isobar.ModeFull
		p := ticks(t, top, 3, map[string]float64{"us/a": 100})
		top = threeZones(t)
		top.Services[0].Mode = mode
		for range 2 {
			in := plan.Input{Now: p.Made.Add(5 * time.Second), Trigger: assign.Tick, Topology: top, Previous: p, Version: p.Version + 1}
			in.Load = demand(in.Now, "checkout", map[string]float64{"us/a": 100})
			in.Deviations = []load.Deviations{{Service: "checkout", Barred: []load.Barred{{Source: loc("us/b"), Locality: loc("us/b"), Since: t0}}}}
			next, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			p = next
		}
		if s, _ := p.Service("checkout"); s.Mode() != isobar.ModeFull {
			t.Fatalf("mode %s serves %s", mode, s.Mode())
		}
		if got := share(t, p, "us/b", "us/b"); got > 0.05 { // a probe continues
			t.Errorf("mode %s: %.2f of us/b stays where it reaches nobody", mode, got)
		}
	}
}
