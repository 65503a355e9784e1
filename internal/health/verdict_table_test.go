package health_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

func TestVerdictsAge(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	heard := w.now
	for i := range w.checkers {
		w.silent[w.checkers[i].ID] = true
	}
	w.run(10 * time.Minute)
	v := w.verdict("web", first)
	if v.Status != isobar.Healthy || !v.Frozen || v.Since.After(heard) {
		t.Errorf("%+v, want the verdict of before", v)
	}
	// Votes are fresh for three report intervals, so the verdict was confirmed
	// until then.
	if age := w.now.Sub(v.Confirmed); age < 10*time.Minute-4*interval {
		t.Errorf("confirmed %s ago, want about 10 min", age)
	}
	for _, vote := range v.Votes {
		if vote.Fresh || vote.Counts || vote.Age(w.now) != 10*time.Minute || vote.Status != isobar.Healthy {
			t.Errorf("vote %+v, want one of 10 min ago", vote)
		}
	}
	if s := w.table.Summary("web"); s.Frozen != 3 || s.Healthy != 3 || s.StaleVotes != 9 || !s.OldestConfirmed.Equal(v.Confirmed) {
		t.Errorf("summary %+v", s)
	}
}

func TestReportsThatDoNotCount(t *testing.T) {
	w := one(t)
	w.run(4 * time.Second)
	if w.ignored != 0 {
		t.Fatalf("%d good reports were ignored", w.ignored)
	}
	good := health.Report{Checker: "eu/a-0", Service: "web", Locality: zoneA, Address: first, Status: isobar.Healthy, Arrived: w.now}
	for name, change := range map[string]func(*health.Report){
		"checker":  func(r *health.Report) { r.Checker = "stranger" },
		"service":  func(r *health.Report) { r.Service = "other" },
		"locality": func(r *health.Report) { r.Locality = zoneB },
		"address":  func(r *health.Report) { r.Address = "10.9.9.9:80" },
		"status":   func(r *health.Report) { r.Status = 99 },
		"stream":   func(r *health.Report) { r.Arrived = start.Add(-time.Second) },
	} {
		bad := good
		change(&bad)
		o := health.Observation{Now: w.now, Reports: []health.Report{good, bad, good}, Checkers: w.checkers, Placement: w.placement, Topology: w.topology}
		if out := w.table.Observe(o); out.Ignored != 1 || len(out.Changed) != 0 {
			t.Errorf("%s: %+v, want one report ignored", name, out)
		}
	}
	late := good
	late.Status, late.Arrived = isobar.Unhealthy, w.now.Add(-time.Second)
	w.table.Observe(health.Observation{Now: w.now, Reports: []health.Report{late}, Checkers: w.checkers, Placement: w.placement, Topology: w.topology})
	if got := w.verdict("web", first).Votes[0].Status; got != isobar.Healthy {
		t.Errorf("a report that is older than the last one was taken: %s", got)
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(t, topology(service("web", 1, zoneA), service("api", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(4 * time.Second)
	before := w.table.Verdicts()
	w.topology = topology(service("api", 1, zoneA))
	if changed := w.step(); !reflect.DeepEqual(changed, []string{"web"}) {
		t.Errorf("changed %v, want web", changed)
	}
	if _, found := w.table.Verdicts().Status("web", first); found || w.table.Explain("web") != nil || w.table.Summary("web") != (health.Summary{}) {
		t.Error("verdicts on a service that is gone")
	}
	if h, _ := before.Status("web", first); h != isobar.Healthy {
		t.Error("verdicts of before changed")
	}
	if got := w.table.Services(); !reflect.DeepEqual(got, []string{"api"}) {
		t.Errorf("services %v", got)
	}
	w.topology = nil
	w.table.Observe(health.Observation{Now: w.now})
	if len(w.table.Services()) != 0 {
		t.Error("services without a topology")
	}
}

// Votes of checkers that never saw an endpoint up count once they had time to probe it.
// Verdicts follow them at the next look at all endpoints, and until then the explanation says so.
func TestVotesThatOnlyNowCount(t *testing.T) {
	o := newMonitorWorld(t, topology(service("web", 3, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	o.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == first {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
	explain := func() string {
		return o.monitor.VerdictTable().Explain("web")[0].Why
	}
	o.step(interval)
	listed := o.now
	for _, at := range []struct {
		after time.Duration // since the checkers began
		want  string
	}{
		{17900 * time.Millisecond, "no verdict yet, the configured status counts: no majority among 3 fresh votes"},
		{18 * time.Second, "no verdict yet, the configured status counts: the votes are new"},
		{20 * time.Second, "3 of 3 fresh votes in 3 zones agree"},
	} {
		for o.now.Add(interval).Before(listed.Add(at.after)) {
			o.step(interval)
		}
		o.now = listed.Add(at.after)
		o.look()
		if got := explain(); got != at.want {
			t.Errorf("after %s: %q, want %q", at.after, got, at.want)
		}
	}
}

func TestWhatOperatorsDrainAndStopIsNotHeld(t *testing.T) {
	all := []string{first, "10.0.0.1:80", second, "10.1.0.1:80"}
	for name, out := range map[string]func(*monitorWorld){
		"override": func(o *monitorWorld) {
			for _, a := range all[:3] {
				o.operators = o.operators.With(health.Override{Key: health.Key{Service: "web", Address: a}, Status: isobar.Draining})
			}
		},
		"configured": func(o *monitorWorld) {
			o.change(func(s *isobar.Service) {
				s.Localities[0].Endpoints[0].Health = isobar.Draining
				s.Localities[0].Endpoints[1].Health = isobar.Unhealthy
				s.Localities[1].Endpoints[0].Health = isobar.Draining
			})
		},
	} {
		for when, early := range map[string]bool{"before they stop": true, "after": false} {
			t.Run(name+" "+when, func(t *testing.T) {
				o := newMonitorWorld(t, topology(service("web", 2, zoneA, zoneB)), checkersIn(1, zoneA, zoneB, zoneC))
				o.run(10 * time.Second)
				if early {
					out(o)
					o.step(interval)
				}
				o.dead(all[:3]...)
				o.run(5 * interval)
				if !early {
					if v := o.verdict(first); !v.Held {
						t.Fatalf("%+v, want it held: three of four at once", v)
					}
					out(o)
				}
				o.run(5 * interval)
				if alarms := o.monitor.VerdictTable().Alarms(); len(alarms) != 0 {
					t.Errorf("alarm: %s", alarms[0].Why)
				}
				o.operators = health.Table{}
				o.change(func(s *isobar.Service) {
					for i := range s.Localities {
						for j := range s.Localities[i].Endpoints {
							s.Localities[i].Endpoints[j].Health = isobar.Unknown
						}
					}
				})
				o.look()
				for _, a := range all[:3] {
					if got := o.told(a); got != isobar.Unhealthy {
						t.Errorf("%s is %s once it is back in use, want unhealthy: it is stopped", a, got)
					}
				}
			})
		}
	}
}

// A blue-green deployment: all old ones are drained in the same change that
// adds the new ones.
func TestNewEndpointsDoNotWaitForWhatIsDrained(t *testing.T) {
	o := atRest(t, 1, 1, zoneA, zoneB, zoneC)
	o.change(func(s *isobar.Service) {
		for i, a := range fresh(3) {
			s.Localities[i].Endpoints[0].Health = isobar.Draining
			s.Localities[i].Endpoints = append(s.Localities[i].Endpoints, isobar.Endpoint{Address: a})
		}
	})
	o.look()
	for _, a := range fresh(3) {
		if !o.told(a).Usable() {
			t.Errorf("%s is %s: nothing is left to use", a, o.told(a))
		}
	}
	// By overrides: what waits is let in when the last healthy one is drained.
	o = atRest(t, 1, 1, zoneA, zoneB, zoneC)
	o.add(0, fresh(1)...)
	o.look()
	for i, a := range []string{first, second, third} {
		if o.told(fresh(1)[0]).Usable() {
			t.Errorf("used with %d others healthy", 3-i)
		}
		o.operators = o.operators.With(health.Override{Key: health.Key{Service: "web", Address: a}, Status: isobar.Draining})
		o.look()
	}
	if !o.told(fresh(1)[0]).Usable() {
		t.Errorf("%s: nothing is left to use", o.told(fresh(1)[0]))
	}
}

func TestRestart(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	w.topology = topology(service("web", 2, zoneA, zoneB, zoneC))
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		switch k.Address {
		case first:
			return isobar.Timeout
		case "10.0.0.1:80":
			return isobar.Unknown
		}
		return isobar.Healthy
	}
	w.run(4 * time.Second)
	saved := w.table.Save()
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var read health.Saved
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	was := w.verdict("web", first)

	w.now = w.now.Add(time.Minute)
	w.table = health.NewVerdictTable(health.Settings{ReportInterval: interval}, read, w.now)
	if got := w.status("web", first); got != isobar.Timeout {
		t.Fatalf("%s before anything is known, want what was saved", got)
	}
	o := health.Observation{Now: w.now, Placement: w.placement, Topology: topology(service("web", 3, zoneA, zoneB, zoneC))}
	w.table.Observe(o)
	v := w.verdict("web", first)
	if v.Status != isobar.Timeout || !v.Since.Equal(was.Since) || !v.Confirmed.Equal(was.Confirmed) || !v.Frozen || len(v.Votes) != 3 || v.Votes[0].Status != isobar.Timeout || v.Votes[0].Fresh {
		t.Errorf("%+v, want %+v without fresh votes", v, was)
	}
	if v := w.verdict("web", "10.0.0.1:80"); v.Pending || v.Status != isobar.Unknown {
		t.Errorf("%+v: it has waited for longer than 30 s", v)
	}
	if v := w.verdict("web", "10.0.0.2:80"); !v.Pending {
		t.Errorf("%+v: it was added meanwhile and should wait", v)
	}
	for i := range w.checkers {
		w.checkers[i].Since = w.now.Add(time.Second)
	}
	w.topology = o.Topology
	w.all(isobar.Healthy)
	w.step()
	if got := w.status("web", first); got != isobar.Healthy {
		t.Errorf("%s after new votes, want healthy", got)
	}
}

func TestDamagedSavedState(t *testing.T) {
	future := start.Add(24 * time.Hour)
	key := health.Key{Service: "web", Address: first}
	saved := health.Saved{Endpoints: []health.SavedEndpoint{
		{Key: health.Key{Service: "web", Address: second}, Status: 77, Votes: []health.SavedVote{{Checker: "eu/a-0", Status: 99}}},
		{Key: key, Status: isobar.Healthy, Since: future, Confirmed: future, Votes: []health.SavedVote{
			{Checker: "eu/b-0", Status: isobar.Healthy, Since: future, Heard: future}, {Checker: "eu/b-0", Status: isobar.Timeout}, {Checker: "", Status: isobar.Healthy},
		}},
		{Key: key, Status: isobar.Timeout},
		{},
	}}
	w := one(t)
	w.table = health.NewVerdictTable(health.Settings{ReportInterval: interval}, saved, start)
	w.all(isobar.Unknown)
	w.step()
	if v := w.verdict("web", first); v.Status != isobar.Healthy || v.Since.After(start) || v.Confirmed.After(start) || v.Votes[1].Heard.After(start) {
		t.Errorf("%+v, want healthy, not in the future", v)
	}
	if v := w.verdict("web", second); v.Status != isobar.Unknown {
		t.Errorf("%+v, want no verdict", v)
	}
	w.all(isobar.Healthy)
	w.run(3 * interval)
	if got := w.count("web", isobar.Healthy); got != 3 {
		t.Errorf("%d healthy, want all 3", got)
	}
}

// A clock that was set back makes streams seem older than the previous ones.
func TestAClockThatIsSetBackOverARestart(t *testing.T) {
	o := atRest(t, 5, 1, zoneA, zoneB, zoneC)
	o.restart(func(s *health.SavedMonitor) {
		for i := range s.Checkers {
			s.Checkers[i].Since = start.Add(time.Hour)
		}
	})
	o.monitor.Observe(health.Event{Now: o.now, Topology: o.topology}) // nobody is connected yet
	for i := range o.connected {
		o.connected[i].Since = o.now.Add(time.Second)
	}
	o.dead(second)
	ignored := 0
	for range 15 {
		ignored += o.step(interval).Ignored
	}
	if got := o.told(second); got != isobar.Unhealthy || ignored != 0 {
		t.Errorf("%s after 30 s, %d reports ignored; want unhealthy and none", got, ignored)
	}
}

// TestServicesAge: verdicts that nobody confirms age together, a silent zone
// of checkers ages nothing, and what was never probed has no age.
func TestServicesAge(t *testing.T) {
	w := one(t)
	if a := w.table.Ages(); len(a) > 0 && a[0].Checked {
		t.Errorf("before any verdict: %+v", a)
	}
	w.run(10 * time.Second)
	want := health.VerdictAge{Service: "web", Checked: true}
	if a := w.table.Ages(); len(a) != 1 || a[0] != want {
		t.Errorf("fresh: %+v", a)
	}
	for i := range w.checkers {
		w.silent[w.checkers[i].ID] = true
	}
	w.run(10 * time.Minute)
	a := w.table.Ages()[0]
	if a.Most < 9*time.Minute || a.Most > 10*time.Minute || a.Some < a.Most {
		t.Errorf("ten minutes without a vote: %+v", a)
	}
	if w.status("web", first) != isobar.Healthy {
		t.Error("what is old is read as something new")
	}
	clear(w.silent)
	w.run(time.Minute)
	if a := w.table.Ages(); a[0] != want {
		t.Errorf("after they came back: %+v", a)
	}
}

// TestOverviewIsTheReportWithoutEndpoints: the status shows it, and must see what
// the report would show.
func TestOverviewIsTheReportWithoutEndpoints(t *testing.T) {
	o := atRest(t, 3, 1, zoneA, zoneB) // short of a third checker for each
	report := o.monitor.Report("")
	if len(report) == 0 || len(report[0].Endpoints) == 0 {
		t.Fatal("nothing is reported")
	}
	for i := range report {
		report[i].Endpoints = nil
	}
	if got := o.monitor.Overview(); !reflect.DeepEqual(got, report) {
		t.Errorf("got %+v, want %+v", got, report)
	}
}
